"""The jobs of the command line: explain files, compare methods. Each returns an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from moreaugrad.api import ExplainBatch, Record, best_device
from moreaugrad.cli import report
from moreaugrad.cli.method_options import taken
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.images import find_images, read_image, unique_names
from moreaugrad.model.prepared import MANY
from moreaugrad.models import load_model
from moreaugrad.models.classifier import Classifier
from moreaugrad.plotting import pictures
from moreaugrad.types import Item

DONE, SOME_FAILED, NOTHING_DONE = 0, 1, 2
TOGETHER = {"cuda": 64}  # images per call; one by one elsewhere


def explain_files(images: Sequence[str], method: str, request: Request, terminal: Terminal) -> int:
    """Pictures, maps and JSON lines of every image that can be read."""
    terminal.hear_warnings()
    paths = find_images(images, skip=request.out)
    named = list(zip(unique_names(paths), paths, strict=True))
    prepare(request.out, (f"{key}{end}" for key, _ in named for end in (".png", ".npz")), paths)
    classifier = load(request, terminal)
    size = TOGETHER.get(classifier.device.type, 1)
    batch = ExplainBatch(classifier, method, request.options)
    if size > 1 and len(named) >= MANY and not batch.method.once:
        batch = ExplainBatch(classifier, method, {"compile": True} | request.options)
    target = class_number(request.target, classifier)
    failed = 0
    for start in range(0, len(named), size):
        some = named[start : start + size]
        with terminal.bar(f"{some[0][1].name} ({start + 1} of {len(named)})") as watch:
            records = batch.read_and_explain(some, target, watch)
        for (_, path), record in zip(some, records, strict=True):
            failed += not _finished(record, path, batch, request.out, terminal)
    return DONE if not failed else NOTHING_DONE if failed == len(named) else SOME_FAILED


def compare_methods(image: Path, names: Sequence[str], request: Request, terminal: Terminal, every: bool) -> int:
    """One picture of several methods. Where `every` one was meant, those that cannot serve the network are left out."""
    terminal.hear_warnings()
    each = _fitting(names, request.options)
    item = Item(Path(image).stem, read_image(image))
    file = request.out / f"{item.key}_compare.png"
    prepare(request.out, [file.name], [image])
    classifier = load(request, terminal)
    target = class_number(request.target, classifier)
    found: dict[str, Record] = {}
    reasons: list[str] = []
    for name, options in each.items():
        try:
            with terminal.bar(name) as watch:
                (record,) = ExplainBatch(classifier, name, options)([replace(item, target=target)], watch)
            if record.explanation is None:
                raise ValueError(record.error)
        except (ValueError, TypeError) as error:
            if not every or request.chosen & set(options):
                raise ValueError(f"{name}: {error}") from error
            terminal.say(f"{name}: left out: {error}")
            reasons.append(f"{name}: {error}")
            continue
        found[f"{name}\n{report.cost(record)}"] = record
        target = record.target  # the same for all
        terminal.say(f"{name}: {report.headline(record)}")
    if not found:
        raise ValueError(f"no method gave a map; {reasons[0]}")
    records = list(found.values())
    side_by_side(records, list(found), f"{item.key}: {records[0].label or f'class {target}'}", file)
    terminal.say(f"-> {file}")
    return DONE


def side_by_side(records: Sequence[Record], names: Sequence[str], title: str, file: Path) -> None:
    """The image and the maps of several methods, each on its own scale."""
    maps = [record.explanation.map[0] for record in records if record.explanation is not None]
    tiles: list[tuple[str, Any]] = [("input", records[0].pixels), *zip(names, maps, strict=True)]
    pictures.write(pictures.grid(tiles, columns=3 if len(tiles) in (5, 6) else 4, title=title), file)


def load(request: Request, terminal: Terminal) -> Classifier:
    device = best_device(request.device)
    with terminal.busy(f"loading {request.model}"):
        return load_model(request.model, request.weights, request.labels, device)


def prepare(out: Path, files: Iterable[str], images: Sequence[Path]) -> None:
    """Makes the folder of the results, and refuses to write over an image that is to be read."""
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


def _fitting(names: Sequence[str], options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each method the options that it takes; a sparse one is told how sparse."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        known = taken(name)
        found[name] = {key: value for key, value in options.items() if key in known}
        if "sparsity" in known and not {"eta", "sparsity"} & set(found[name]):
            found[name]["sparsity"] = 0.05
    for key in options:
        if not any(key in fitting for fitting in found.values()):
            typed = "mask-network" if key == "network" else key.replace("_", "-")
            raise ValueError(f"--{typed} must be an option of a compared method, got only {list(names)}")
    return found


def _finished(record: Record, path: Path, batch: ExplainBatch, out: Path, terminal: Terminal) -> bool:
    """Writes what became of an image, and tells; whether all went well."""
    if record.explanation is not None:
        try:
            report.write(record, out)
        except OSError as error:
            record = Record(record.key, error=f"the result cannot be written: {error}")
    line = report.as_json(record, str(path), batch)
    report.append(line, out)
    terminal.result(line)
    if record.explanation is None:
        terminal.error(f"{path}: {record.error}")
        return False
    terminal.say(f"{record.key}: {report.headline(record)} -> {out / record.key}.png")
    return True
