"""`explain`, `compare` and `demo`: pictures, raw maps and JSON lines of images. Heavy imports are made inside."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moreaugrad.cli.checks import choose_method, class_number, make_folder, open_image
from moreaugrad.cli.options import (
    ImageFile,
    ImageFiles,
    Json,
    MethodName,
    MethodOptions,
    ModelOptions,
    Out,
    Quiet,
    TargetClass,
)
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS

if TYPE_CHECKING:
    from PIL import Image

    from moreaugrad.api import Explainer, Record
    from moreaugrad.models.classifier import Classifier

DONE, SOME_FAILED, NOTHING_DONE = 0, 1, 2
BATCH = {"cuda": 64}  # images per call; one by one on other devices
RESULTS = "results.jsonl"
# together about 700 gradients: well under a minute on two cores
DEMO: dict[str, dict[str, Any]] = {
    "gradient": {},
    "moreau": {"budget": 192},
    "sparse_moreau": {"budget": 288},
    "group_sparse_moreau": {"budget": 192},
}

MethodNames = Annotated[
    str, typer.Option("--methods", help="Names from `moreaugrad methods`, with commas; default: all.")
]


def explain(
    images: ImageFiles,
    *,
    method: MethodName = None,
    target: TargetClass = None,
    model: ModelOptions,
    options: MethodOptions,
    out: Out = Path("maps"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Explain images: write a picture, the raw map (.npz) and a JSON line for each to the folder OUT."""
    given = options.given()
    name = choose_method(method, given)
    from moreaugrad.api import Explainer
    from moreaugrad.data.sources import find_images, unique_names
    from moreaugrad.model.prepared import MANY

    terminal = Terminal(quiet, json)
    terminal.hear_warnings()
    paths = find_images(images, skip=out)
    named = list(zip(unique_names(paths), paths, strict=True))
    make_folder(out, (f"{key}{end}" for key, _ in named for end in (".png", ".npz")), paths)
    classifier = model.load(terminal)
    size = BATCH.get(classifier.device.type, 1)
    explainer = Explainer(classifier, name, given)
    if size > 1 and len(named) >= MANY and not explainer.method.once:
        explainer = Explainer(classifier, name, {"compile": True} | given)
    chosen = class_number(target, classifier)
    failed = 0
    for start in range(0, len(named), size):
        some = named[start : start + size]
        with terminal.bar(f"{some[0][1].name} ({start + 1} of {len(named)})") as watch:
            records = explainer(some, chosen, watch)
        for (_, path), record in zip(some, records, strict=True):
            failed += not write_result(record, str(path), explainer, out, terminal)
    return DONE if not failed else NOTHING_DONE if failed == len(named) else SOME_FAILED


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

    An option goes to the methods that take it.
    """
    path, given = open_image(image), options.given()
    usable = [name for name, each in METHODS.items() if "network" in given or "trained" not in each.flags]
    names = [name.strip() for name in methods.split(",")] if methods else usable
    _ = [METHODS[name] for name in names]  # an unknown one raises
    from moreaugrad.data.images import read_image
    from moreaugrad.data.sources import name_source

    terminal = Terminal(quiet)
    terminal.hear_warnings()
    shares = share_options(names, given)
    picture, key = read_image(path), name_source(path)
    file = out / f"{key}_compare.png"
    make_folder(out, [file.name], [path])
    classifier = model.load(terminal)
    specific = None if methods else options.specific
    found = _explain_by_each(shares, classifier, (key, picture), class_number(target, classifier), specific, terminal)
    first = next(iter(found.values()))
    draw_side_by_side(found, f"{key}: {first.label or f'class {first.target}'}", file)
    terminal.say(f"-> {file}")
    return DONE


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
                (record,) = Explainer(classifier, name, options)([source], target, watch)
            if record.explanation is None:
                raise ValueError(record.error)
        except (ValueError, TypeError) as error:
            if specific is None or specific & set(options):
                raise ValueError(f"{name}: {error}") from error
            terminal.say(f"{name}: left out: {error}")
            reasons.append(f"{name}: {error}")
            continue
        spent = 0 if record.explanation.gradients is None else int(record.explanation.gradients)
        found[f"{name}\n{spent:,} gradient{'' if spent == 1 else 's'}, {record.seconds:.2g} s"] = record
        target = record.target  # the same class for all
        terminal.say(f"{name}: {describe(record)}")
    if not found:
        raise ValueError(f"no method gave a map; {reasons[0]}")
    return found


def demo(*, out: Out = Path("demo"), quiet: Quiet = False) -> int:
    """Explain a built-in photo with four methods; takes less than a minute on two CPU cores."""
    from skimage.data import chelsea

    from moreaugrad.api import Explainer

    terminal = Terminal(quiet)
    terminal.hear_warnings()
    make_folder(out)
    classifier = ModelOptions().load(terminal)
    photo = chelsea()  # type: ignore[no-untyped-call]
    found = {}
    for name, options in DEMO.items():
        explainer = Explainer(classifier, name, options)
        with terminal.bar(name) as watch:
            (found[name],) = explainer([(f"chelsea_{name}", photo)], None, watch)
        if not write_result(found[name], "skimage.data.chelsea", explainer, out, terminal):
            return NOTHING_DONE
    file = out / "chelsea_compare.png"
    draw_side_by_side(found, f"scikit-image's chelsea: {found['gradient'].label}", file)
    terminal.say(f"all side by side -> {file}")
    return DONE


def share_options(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each method the options that it takes."""
    from moreaugrad.methods.options import takes_option

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        found[name] = {key: value for key, value in options.items() if takes_option(name, key, options)}
    for key in options:
        if not any(key in own for own in found.values()):
            typed = "mask-network" if key == "network" else key.replace("_", "-")
            raise ValueError(f"--{typed} must be an option of a compared method, got only {list(names)}")
    return found


def write_result(record: Record, file: str, explainer: Explainer, out: Path, terminal: Terminal) -> bool:
    """Write the picture, map and JSON line of one image, and report it; whether all went well."""
    from moreaugrad.plotting import pictures

    one, error = record.explanation, record.error
    if one is not None:
        try:
            one.save(out / f"{record.key}.npz")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the method has warned of an all-zero map already
                figure = pictures.panel(record.picture, one.map[0], f"{record.key}: {describe(record)}")
            pictures.write(figure, out / f"{record.key}.png")
        except OSError as reason:
            error = f"the result cannot be written: {reason}"
    line = as_json(record, error, file, explainer)
    with (out / RESULTS).open("a", encoding="utf-8") as results:
        results.write(line + "\n")
    terminal.result(line)
    if error is not None:
        terminal.error(f"{file}: {error}")
    else:
        terminal.say(f"{record.key}: {describe(record)} -> {out / record.key}.png")
    return error is None


def as_json(record: Record, error: str | None, file: str, explainer: Explainer) -> str:
    """One line of strict JSON: NaN and infinity are null."""
    from moreaugrad.methods.options import describe_options, versions

    one, model = record.explanation, explainer.classifier.name
    found: dict[str, Any] = {"file": file, "key": record.key, "model": model, "method": explainer.name}
    if one is None or error is not None:
        return json.dumps(found | {"error": error}, ensure_ascii=False, allow_nan=False)
    numbers = {"score": one.score, "entries_kept": one.kept, "pixels_kept": one.pixels_kept}
    numbers |= {
        name: getattr(one, name) for name in ("eta", "envelope", "residual", "relative_error", "converged", "gradients")
    }
    found |= {"target": record.target, "label": record.label}
    found |= {name: _number(value) for name, value in numbers.items()} | {"seed": one.seed}
    found |= {"seconds": round(record.seconds, 3), "precision": one.options.get("precision")}
    found |= {name: _number(length) for name, length in record.lengths.items()}
    found |= {"options": describe_options(explainer.method), "versions": versions()}
    return json.dumps(found, ensure_ascii=False, allow_nan=False)


def describe(record: Record) -> str:
    """What was explained, how much of the image the map keeps, and how well it is known."""
    from moreaugrad.results import describe_accuracy

    one = record.explanation
    assert one is not None
    named = f"{record.label} (class {record.target})" if record.label else f"class {record.target}"
    parts = [named if record.target is not None else "the only output"]
    if one.score is not None:
        parts.append(f"score {float(one.score):.3g}")
    parts.append(f"{100 * float(one.kept):.3g} % of entries, {100 * float(one.pixels_kept):.3g} % of pixels")
    return ", ".join([*parts, *describe_accuracy(one)])


def draw_side_by_side(records: Mapping[str, Record], title: str, file: Path) -> None:
    """The image and the maps of several methods, each on its own scale and under its name."""
    from moreaugrad.plotting import pictures

    maps = {name: record.explanation.map[0] for name, record in records.items() if record.explanation is not None}
    tiles: list[tuple[str, Any]] = [("input", next(iter(records.values())).picture), *maps.items()]
    pictures.write(pictures.grid(tiles, columns=3 if len(tiles) in (5, 6) else 4, title=title), file)


def _number(value: Any) -> float | bool | None:
    """The only element of a tensor; None where there is none, or where it is NaN or infinite."""
    found = value.item() if hasattr(value, "item") else value
    return None if isinstance(found, float) and not math.isfinite(found) else found
