"""`compare` and `demo`: several methods on one photo, side by side. Heavy imports are made inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moreaugrad import limits
from moreaugrad.cli.checks import check_method, class_number, make_output, open_image, type_name
from moreaugrad.cli.explain import FolderRun, describe
from moreaugrad.cli.jobs import Job
from moreaugrad.cli.options import (
    METHOD,
    ImageFile,
    MethodOptions,
    ModelOptions,
    Out,
    Quiet,
    TargetClass,
    complete_several_methods,
)
from moreaugrad.cli.results_folder import ResultsFolder, identify
from moreaugrad.cli.terminal import Interruption, Terminal
from moreaugrad.data.sources import name_source
from moreaugrad.methods import METHODS, PRESETS

if TYPE_CHECKING:
    from PIL import Image

    from moreaugrad.api import Record
    from moreaugrad.models.classifier import Classifier

# together about 1,300 gradients: under a minute on two cores, and enough that another seed gives nearly the same maps
DEMO: dict[str, dict[str, Any]] = {
    "gradient": {},
    "moreau": {"budget": 480},
    "sparse_moreau": {"budget": 560},
    "group_sparse_moreau": {"budget": 256},
}

MethodNames = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Names from `moreaugrad methods`, with commas; NAME:PRESET for another preset.",
        show_default="all",
        autocompletion=complete_several_methods,
        rich_help_panel=METHOD,
    ),
]


def compare(
    image: ImageFile,
    *,
    methods: MethodNames = "",
    target: TargetClass = None,
    model: ModelOptions,
    options: MethodOptions,
    out: Out = Path("maps"),
    quiet: Quiet = False,
) -> int:
    """Draw methods side by side, each on its own scale, as OUT/<image>_compare.png.

    An option goes to the methods that take it. sparse_moreau,sparse_moreau:published shows one method twice, with the
    options of both presets.
    """
    path, given = open_image(image), options.given()
    usable = [name for name, each in METHODS.items() if "network" in given or "trained" not in each.flags]
    names = [name.strip() for name in methods.split(",")] if methods else usable
    for each in names:
        split_preset(each)  # an unknown one raises
    from moreaugrad.data.images import read_image

    terminal = Terminal(quiet)
    terminal.hear_warnings()
    shares = share_options(names, given)
    for each in names if methods else ():
        try:
            check_method(split_preset(each)[0], shares[each])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{each}: {error}") from error
    picture, key = read_image(path), name_source(path)
    file = out / f"{key}_compare.png"
    make_output(out, [file.name], [path])
    classifier = model.load(terminal)
    specific = None if methods else options.specific
    found = _explain_by_each(shares, classifier, (key, picture), class_number(target, classifier), specific, terminal)
    first = next(iter(found.values()))
    draw_side_by_side(found, f"{key}: {first.label or f'class {first.target}'}", file)
    terminal.say(f"-> {file}")
    return 0


def _explain_by_each(
    methods: Mapping[str, Mapping[str, Any]],
    classifier: Classifier,
    source: tuple[str, Image.Image],
    target: int | None,
    specific: set[str] | None,
    terminal: Terminal,
) -> dict[str, Record]:
    """Records by method and cost. Methods that cannot explain this network are left out, unless they were asked for:
    by name (`specific` is None), or by an option in `specific`."""
    from moreaugrad.api import Explainer

    found: dict[str, Record] = {}
    reasons: list[str] = []
    for name, options in methods.items():
        try:
            with terminal.bar(name) as watch:
                (record,) = Explainer(classifier, split_preset(name)[0], options)([source], target, watch)
            if record.explanation is None:
                raise ValueError(record.error)
        except (ValueError, TypeError) as error:
            if specific is None or specific & set(options):
                raise ValueError(f"{name}: {error}") from error
            terminal.say(f"{name}: left out: {error}")
            reasons.append(f"{name}: {error}")
            continue
        spent = 0 if record.explanation.gradients is None else int(record.explanation.gradients)
        cost = f"{spent:,} gradient{'' if spent == 1 else 's'}, {record.seconds:.2g} s"
        found[f"{name_tile(name, record)}\n{cost}"] = record
        target = record.target  # the same class for all
        terminal.say(f"{name}: {describe(record)}")
    if not found:
        raise ValueError(f"no method gave a map; {reasons[0]}")
    return found


def demo(*, out: Out = Path("demo"), quiet: Quiet = False) -> int:
    """Explain a built-in photo with four methods; takes less than a minute on two CPU cores."""
    from skimage.data import chelsea

    from moreaugrad.api import Explainer
    from moreaugrad.identity import describe_explainer

    terminal = Terminal(quiet)
    terminal.hear_warnings()
    make_output(out)
    classifier = ModelOptions().load(terminal)
    photo = chelsea()  # type: ignore[no-untyped-call]
    found = {}
    with ResultsFolder(out) as folder:
        for name, options in DEMO.items():
            explainer = Explainer(classifier, name, options)
            job = Job("chelsea", photo, "skimage.data.chelsea", None, identify(describe_explainer(explainer)))
            with terminal.bar(name) as watch:
                (found[name],) = explainer([(job.key, photo)], None, watch)
            FolderRun(folder, explainer, ["png", "npz"], terminal, Interruption()).store(job, found[name])
            if found[name].error is not None:
                return 2
    file = out / "chelsea_compare.png"
    tiles = {name_tile(name, record): record for name, record in found.items()}
    draw_side_by_side(tiles, f"scikit-image's chelsea: {found['gradient'].label}", file)
    terminal.say(f"all side by side -> {file}")
    return 0


def split_preset(text: str) -> tuple[str, str | None]:
    """NAME or NAME:PRESET; a method or preset that is not there raises, and a preset for a method that has none."""
    name, colon, preset = text.partition(":")
    flags = METHODS[name].flags
    if not colon:
        return name, None
    if "preset" not in flags:
        raise ValueError(f"--methods must name a preset only of a method that has some, got {text!r}; write {name}")
    limits.one_of("preset", preset, PRESETS)
    return name, preset


def name_tile(name: str, record: Record) -> str:
    """A method as its tile is called: with its preset."""
    preset = None if record.explanation is None else record.explanation.options.get("preset")
    return name if preset is None else f"{split_preset(name)[0]} ({preset})"


def share_options(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each method, by NAME or NAME:PRESET, the options that it takes."""
    from moreaugrad.methods.options import takes_option

    found: dict[str, dict[str, Any]] = {}
    for each in names:
        name, preset = split_preset(each)
        found[each] = {key: value for key, value in options.items() if takes_option(name, key, options)}
        found[each] |= {} if preset is None else {"preset": preset}
    for key in options:
        if not any(key in own for own in found.values()):
            raise ValueError(f"{type_name(key)} must be an option of a compared method, got only {list(names)}")
    return found


def draw_side_by_side(records: Mapping[str, Record], title: str, file: Path) -> None:
    """The image and the maps of several methods, each on its own scale and under its name."""
    from moreaugrad.plotting import pictures

    maps = {name: record.explanation.map[0] for name, record in records.items() if record.explanation is not None}
    tiles: list[tuple[str, Any]] = [("input", next(iter(records.values())).picture), *maps.items()]
    pictures.write(pictures.grid(tiles, columns=3 if len(tiles) in (5, 6) else 4, title=title), file)
