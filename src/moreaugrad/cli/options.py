"""Options that commands share, each declared once, and what they stand for. Imports nothing heavy by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from moreaugrad import limits
from moreaugrad.cli.command import complete, option, parse_numbers, parse_setting
from moreaugrad.methods import DEFAULT_PRESET, METHODS, PRESETS, QUALITY
from moreaugrad.model import STATISTICS, VARIANCE
from moreaugrad.models import MODELS, find_entry

if TYPE_CHECKING:
    from moreaugrad.cli.terminal import Terminal
    from moreaugrad.models.classes import Wanted
    from moreaugrad.models.classifier import Classifier

MODEL, METHOD, ACCURACY, OUTPUT = "Model", "Method", "Noise and accuracy", "Output"  # panels of --help


def _by_preset(option: str) -> str:
    """What an option is in each preset."""
    values = {name: preset[option] for name, preset in PRESETS.items()}
    return "; ".join(f"{name}: {value if isinstance(value, str) else f'{value:g}'}" for name, value in values.items())


# what a method takes where nothing is typed, for --help: the classes themselves would cost the import of torch
DEFAULTS = {
    "sparsity": "0.05; groups: 0.15",
    "groups": "16",
    "rho": _by_preset("rho"),
    "statistic": f"{_by_preset('statistic')}; smoothgrad: mean",
    "noise_level": f"{_by_preset('noise_level')}; smoothgrad: 0.15",
    "samples": "8; smoothgrad: 64",
    "budget": "800",
    "tau": "0.1",
    "score": "logit",
    "seed": "0",
}


def model_names() -> list[str]:
    """Models by name, and the beginnings of those of hubs."""
    return [
        name if entry.flags or name.isidentifier() else name.rpartition("/")[0] + "/"
        for name, entry in MODELS.items()
        if ":" not in name
    ]


complete_methods, complete_models = complete(lambda: METHODS), complete(model_names)
complete_several_methods = complete(lambda: METHODS, lists=True)

ImageFile = Annotated[str, typer.Argument(help="An image file; - reads standard input.", show_default=False)]
ImageFiles = Annotated[
    list[str],
    typer.Argument(help="Image files, folders or patterns; - reads standard input.", show_default=False),
]
Frames = Annotated[
    bool, typer.Option("--frames", help="Explain every frame of animations, documents and videos, not only the first.")
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="A name from `moreaugrad methods`, or captum/CLASS.",
        show_default="sparse_moreau; moreau with --prior",
        autocompletion=complete_methods,
        rich_help_panel=METHOD,
    ),
]
TargetClass = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The class to explain, by number or name.",
        show_default="the predicted class",
        rich_help_panel=METHOD,
    ),
]
Top = Annotated[
    int | None,
    typer.Option(help="Explain this many classes of each image, the most likely ones.", rich_help_panel=METHOD),
]
Against = Annotated[
    str | None,
    typer.Option(
        help="A second class, by number or name: what speaks for the first rather than for it.", rich_help_panel=METHOD
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="A checkpoint file, or 'random'.", show_default="pretrained", rich_help_panel=MODEL)
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, mps, xpu, ...; auto takes a GPU if there is one.",
        autocompletion=complete(lambda: ("auto", "cpu", "cuda", "mps", "xpu")),
        rich_help_panel=MODEL,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", rich_help_panel=ACCURACY)]
Out = Annotated[Path, typer.Option(help="Folder for the results.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=OUTPUT)]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON line per image, and nothing else.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True)
class ModelOptions:
    """A classifier, and where it runs."""

    panel: ClassVar[str] = MODEL

    model: str = option(
        "A name from `moreaugrad models`, or package.module:factory.",
        default="efficientnet_lite0",
        autocompletion=complete_models,
    )
    weights: Weights = None
    labels: Path | None = option("Class names: one per line, or JSON.", shown="the model's own")  # noqa: RUF009
    device: Device = "auto"
    size: str | None = option(
        "Side of the network's input, or its height and width, in pixels.",
        metavar="PIXELS",
        shown="the model's own, else 224",
    )
    mean: str | None = option(
        "What is subtracted from each channel, on the scale 0..1.",
        metavar="R,G,B",
        shown="the model's own, else ImageNet's",
    )
    std: str | None = option(
        "What each channel is divided by.", metavar="R,G,B", shown="the model's own, else ImageNet's"
    )

    def __post_init__(self) -> None:
        find_entry(self.model)  # an unknown one raises
        if self.weights not in (None, "random"):
            limits.checkpoint(self.weights)
        if self.labels is not None:
            limits.text_file("labels", self.labels)
        limits.view(**self.view)

    @property
    def view(self) -> dict[str, Any]:
        """What was typed of the preprocessing, as numbers."""
        size = parse_numbers("size", self.size, int)
        found = {name: parse_numbers(name, getattr(self, name), float) for name in ("mean", "std")}
        return {"size": size} | found

    def load(self, terminal: Terminal) -> Classifier:
        from moreaugrad.model.devices import best_device
        from moreaugrad.models import load_model

        device = best_device(self.device)
        with terminal.busy(f"loading {self.model}"):
            return load_model(self.model, self.weights, self.labels, device, **self.view)


@dataclass(frozen=True)
class ClassOptions:
    """The class, or classes, to explain."""

    target: TargetClass = None
    top: Top = None
    against: Against = None

    def __post_init__(self) -> None:
        if self.top is not None:
            limits.at_least("top", self.top, 1)
            if self.target is not None:
                raise ValueError(f"--top and --target exclude each other, got {self.top} and {self.target!r}; give one")
        if self.against is not None and self.against == self.target:
            raise ValueError(f"--against must be another class than --target, got {self.against!r} for both")

    def choose(self, classifier: Classifier) -> list[Wanted]:
        """What to explain in each image: classes by number or rank; None is the predicted one."""
        from moreaugrad.models.classes import Ranked, find_class

        if self.top is None:
            return [None if self.target is None else find_class(self.target, classifier.labels)]
        if classifier.labels and self.top > len(classifier.labels):
            raise ValueError(f"top must be at most {len(classifier.labels)}, the number of classes, got {self.top}")
        return [Ranked(rank + 1) for rank in range(self.top)]

    def contrast(self, classifier: Classifier, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a method, with a score that is a contrast where one was asked for."""
        from moreaugrad.models.classes import Contrast, find_class

        if self.against is None:
            return dict(options)
        against = find_class(self.against, classifier.labels, "against")
        return {**options, "score": Contrast(against, options.get("score", "logit"))}


@dataclass(frozen=True)
class PriorOptions:
    """Options of a method that every command takes: those of its prior, and any other by --set."""

    panel: ClassVar[str] = METHOD

    eta: float | None = option("Weight of the prior, for sparse methods.", shown="chosen by --sparsity")
    sparsity: float | None = option("Share of the map to keep, for sparse methods.", shown=DEFAULTS["sparsity"])
    groups: str | None = option(
        "Cells per side, 'superpixels' or 'channels'.",
        shown=DEFAULTS["groups"],
        autocompletion=complete(lambda: limits.GROUPS),
    )
    statistic: str | None = option(
        "What is taken of the gradients under noise: mean, rms, votes, geometric, ...",
        shown=DEFAULTS["statistic"],
        autocompletion=complete(lambda: STATISTICS),
    )
    tau: float | None = option("Share of the entries that a noisy copy votes for.", shown=DEFAULTS["tau"])
    preset: str | None = option(
        f"Options of the MoreauGrad family by one word: {' or '.join(PRESETS)}.",
        shown=f"{DEFAULT_PRESET} in explain and compare",
        autocompletion=complete(lambda: PRESETS),
    )
    prior: str | None = option("The prior of a method that takes one, e.g. l1.", shown="the method's own")
    others: list[str] | None = option(  # noqa: RUF009
        "Any other option, e.g. rule=gausslegendre; may be repeated.", "--set", metavar="NAME=VALUE"
    )

    def given(self) -> dict[str, Any]:
        """The options that were typed, by their names in Python; values that no method takes raise."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("others", "quality")}
        found["groups"] = int(self.groups) if self.groups and self.groups.isdecimal() else self.groups
        found = {name: value for name, value in found.items() if value is not None}
        limits.options(found)
        if self.statistic is not None:
            limits.one_of("statistic", self.statistic, [*STATISTICS, VARIANCE])
        if self.preset is not None:
            limits.one_of("preset", self.preset, PRESETS)
        for text in self.others or ():
            name, value = parse_setting(text)
            if name in found:
                raise ValueError(f"--set must not repeat an option, got {text!r} and {name}={found[name]}")
            found[name] = value
        return found


@dataclass(frozen=True)
class MethodOptions(PriorOptions):
    """All options of a method that have a name of their own."""

    panel: ClassVar[str] = ACCURACY

    rho: float | None = option(
        "Radius of the envelope, in squared units of the network's input; 0 takes all gradients at the input.",
        shown=DEFAULTS["rho"],
        rich_help_panel=METHOD,
    )
    score: str | None = option(
        f"{', '.join(limits.SCORES[:-1])} or {limits.SCORES[-1]} of the class.",
        shown=DEFAULTS["score"],
        rich_help_panel=METHOD,
        autocompletion=complete(lambda: limits.SCORES),
    )
    layer: str | None = option(
        "Module path, for methods that read a layer; several with commas.",
        shown="found in the network",
        rich_help_panel=METHOD,
    )
    mask_network: Path | None = option(  # noqa: RUF009
        "A file made by `moreaugrad train-mask`.", rich_help_panel=METHOD
    )
    noise_level: float | None = option(
        "Noise relative to the range of the image; 0 for none.", shown=DEFAULTS["noise_level"]
    )
    samples: int | None = option("Noise vectors per step.", shown=DEFAULTS["samples"])
    budget: int | None = option("Gradients per image.", shown=DEFAULTS["budget"])
    quality: str | None = option(
        f"Instead of --budget: {', '.join(f'{name} ({QUALITY[name]})' for name in QUALITY)}.",
        autocompletion=complete(lambda: QUALITY),
    )
    relative_error: float | None = option(
        "Stop an image once the relative standard error of its map is below this.", shown="spend the budget"
    )
    seed: int | None = option("Seed of the noise.", shown=DEFAULTS["seed"])
    precision: str | None = option(
        "float32, tf32, bfloat16 or float16.",
        shown="by the device",
        autocompletion=complete(lambda: limits.PRECISIONS),
    )
    compile: bool | None = option("Use torch.compile.", "--compile/--no-compile", shown="for many images on a GPU")

    def given(self) -> dict[str, Any]:
        found = super().given()
        if "mask_network" in found:
            found["network"] = str(found.pop("mask_network"))
        budget = choose_budget(self.quality, self.budget)
        return found if budget is None else found | {"budget": budget}

    @property
    def specific(self) -> set[str]:
        """Options meant for some method in particular, so that they must not be ignored by a comparison."""
        named = {"layer": self.layer, "network": self.mask_network}
        return {name for name, value in named.items() if value} | {parse_setting(text)[0] for text in self.others or ()}


def choose_budget(quality: str | None, budget: int | None) -> int | None:
    """The gradients per image that were typed, as a number or as a quality."""
    if quality is None:
        return budget
    if budget is not None:
        raise ValueError(f"--quality and --budget exclude each other, got {quality!r} and {budget}")
    if quality not in QUALITY:
        raise ValueError(f"--quality must be one of {list(QUALITY)}, got {quality!r}")
    return QUALITY[quality]
