"""Options that commands share, each declared once, and what they stand for. Imports nothing heavy by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from moreaugrad.methods import METHODS, QUALITY

if TYPE_CHECKING:
    from moreaugrad.cli.terminal import Terminal
    from moreaugrad.models.classifier import Classifier

ImageFile = Annotated[Path, typer.Argument(help="An image file.", show_default=False)]
ImageFiles = Annotated[list[str], typer.Argument(help="Image files, folders or patterns.", show_default=False)]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="A name from `moreaugrad methods`, or captum/CLASS; default: sparse_moreau, or moreau with --prior.",
    ),
]
TargetClass = Annotated[
    str | None, typer.Option("--target", help="The class to explain, by number or name; default: the predicted class.")
]
Weights = Annotated[str | None, typer.Option(help="A checkpoint file, or 'random'.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU if there is one.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module or .py file that registers methods, priors, ..."),
]


def option(help: str, *names: str, default: Any = None, metavar: str | None = None) -> Any:
    """A field of a dataclass that `expand_options` turns into an option of the command line."""
    info = typer.Option(... if default is MISSING else default, *names, help=help, metavar=metavar)
    return field(default=default, metadata={"info": info})


@dataclass(frozen=True)
class ModelOptions:
    """A classifier, and where it runs."""

    model: str = option("A name from `moreaugrad models`, or package.module:factory.", default="efficientnet_lite0")
    weights: Weights = None
    labels: Path | None = option("Class names: one per line, or JSON.")  # noqa: RUF009
    device: Device = "auto"

    def load(self, terminal: Terminal) -> Classifier:
        from moreaugrad.api import best_device
        from moreaugrad.models import load_model

        device = best_device(self.device)
        with terminal.busy(f"loading {self.model}"):
            return load_model(self.model, self.weights, self.labels, device)


@dataclass(frozen=True)
class PriorOptions:
    """Options of a method that every command takes: those of its prior, and any other by --set."""

    eta: float | None = option("Weight of the prior, for sparse methods.")
    sparsity: float | None = option("Share of the map to keep, e.g. 0.05, for sparse methods; chooses eta.")
    groups: str | None = option("Cells per side, 'superpixels' or 'channels'.")
    prior: str | None = option("The prior of a method that takes one, e.g. l1.")
    others: list[str] | None = option(  # noqa: RUF009
        "Any other option, e.g. rule=gausslegendre; may be repeated.", "--set", metavar="NAME=VALUE"
    )

    def given(self) -> dict[str, Any]:
        """The options that were typed, by their names in Python."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("others", "quality")}
        found["groups"] = int(self.groups) if self.groups and self.groups.isdecimal() else self.groups
        found = {name: value for name, value in found.items() if value is not None}
        for text in self.others or ():
            name, value = parse_setting(text)
            if name in found:
                raise ValueError(f"--set must not repeat an option, got {text!r} and {name}={found[name]}")
            found[name] = value
        return found


@dataclass(frozen=True)
class MethodOptions(PriorOptions):
    """All options of a method that have a name of their own."""

    rho: float | None = option("Radius of the envelope, in squared units of the network's input.")
    noise_level: float | None = option("Noise relative to the range of the image; 0 for none.")
    samples: int | None = option("Noise vectors per step.")
    budget: int | None = option("Gradients per image.")
    quality: str | None = option(f"Instead of --budget: {', '.join(QUALITY)}.")
    relative_error: float | None = option("Stop an image once the relative standard error of its map is below this.")
    score: str | None = option("logit, prob or logprob.")
    seed: int | None = option("Seed of the noise.")
    layer: str | None = option("Module path, for methods that read a layer; several with commas.")
    mask_network: Path | None = option("A file made by `moreaugrad train-mask`.")  # noqa: RUF009
    precision: str | None = option("float32, tf32, bfloat16 or float16; default: by the device.")
    compile: bool | None = option("Use torch.compile; default: for many images.", "--compile/--no-compile")

    def given(self) -> dict[str, Any]:
        found = super().given()
        if "mask_network" in found:
            found["network"] = str(found.pop("mask_network"))
        if self.quality is not None and "budget" in found:
            raise ValueError(f"--quality and --budget exclude each other, got {self.quality!r} and {found['budget']}")
        if self.quality is not None and self.quality not in QUALITY:
            raise ValueError(f"--quality must be one of {list(QUALITY)}, got {self.quality!r}")
        return found if self.quality is None else found | {"budget": QUALITY[self.quality]}

    @property
    def specific(self) -> set[str]:
        """Options meant for some method in particular, so that they must not be ignored by a comparison."""
        named = {"layer": self.layer, "network": self.mask_network}
        return {name for name, value in named.items() if value} | {parse_setting(text)[0] for text in self.others or ()}


def expand_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command for Typer: each parameter that is a dataclass becomes the options that are its fields.

    Adds --import, whose modules are imported before the command looks up any name.
    """
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}
    hints = get_type_hints(command, include_extras=True)
    options: list[Parameter] = []
    for name, one in signature(command).parameters.items():
        if name not in groups:
            options.append(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        own = get_type_hints(groups[name], include_extras=True)
        for each in fields(groups[name]):
            default = each.metadata.get("info", each.default)
            options.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=own[each.name]))
    options.append(Parameter("imports", Parameter.KEYWORD_ONLY, default=None, annotation=Imports))

    @wraps(command)
    def run(imports: list[str] | None = None, **typed: Any) -> Any:
        for module in imports or ():
            import_plugin(module)
        bundles = {
            name: kind(**{each.name: typed.pop(each.name) for each in fields(kind)}) for name, kind in groups.items()
        }
        return command(**typed, **bundles)

    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def import_plugin(name: str) -> None:
    """Import a module by its name, looked for in the current folder too, or a .py file by its path; once."""
    try:
        if name.endswith(".py"):
            _import_file(str(Path(name).resolve()))
        else:
            sys.path.insert(0, str(Path.cwd()))
            try:
                import_module(name)
            finally:
                sys.path.remove(str(Path.cwd()))
    except Exception as error:
        raise ValueError(
            f"--import must name a module or a .py file that can be imported, got {name!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _import_file(path: str) -> None:
    """A file that some module was imported from already would register its members twice."""
    if any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
        return
    spec: Any = spec_from_file_location(path, path)
    sys.modules[path] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        raise


def parse_setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; a value that is JSON (a number, true, null, a list) is read as that, any other is a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--set must be NAME=VALUE, got {text!r}")
    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.strip().replace("-", "_"), value


def choose_method(name: str | None, options: Mapping[str, Any]) -> str:
    """The method by name; the default is one that takes the options. An unknown name raises."""
    chosen = name or ("moreau" if "prior" in options else "sparse_moreau")
    _ = METHODS[chosen]
    return chosen


def class_number(text: str | None, classifier: Classifier) -> int | None:
    """A class by number or by name; None is the predicted one."""
    if text is None or text.lstrip("-").isdecimal():
        return None if text is None else int(text)
    labels = classifier.labels
    if not labels:
        raise ValueError(f"--target must be a class number where classes have no names, got {text!r}; see --labels")
    found = [index for index, label in enumerate(labels) if label.casefold() == text.strip().casefold()]
    if len(found) > 1:
        raise ValueError(f"--target must name one class, got {text!r}, the name of classes {found}; give the number")
    if not found:
        close = get_close_matches(text, labels, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"--target must be a number or one of the {len(labels)} class names, got {text!r}.{hint}")
    return found[0]


def make_folder(out: Path, files: Iterable[str] = (), images: Sequence[Path] = ()) -> None:
    """Make the folder of the results; refuse to write over an image that is to be read."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, got the file {str(out)!r}; name another")
    sources = {image.resolve() for image in images}
    for name in files:
        if (out / name).resolve() in sources:
            raise ValueError(
                f"--out must not lie where results would replace an image, got {str(out)!r}, where {name} is one "
                "of the images; name another folder"
            )
    out.mkdir(parents=True, exist_ok=True)
