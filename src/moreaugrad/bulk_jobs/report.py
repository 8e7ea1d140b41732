"""report.html of a job: what its maps tell together, and many of them to look through, in one file.

The page is `page/report.html` of this package. Its pictures are data in it, put into the document a page at a time.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jinja2 import Environment, PackageLoader, StrictUndefined

from moreaugrad import validate
from moreaugrad.bulk_jobs import summary
from moreaugrad.bulk_jobs.maps import BulkMaps, MeanMap
from moreaugrad.bulk_jobs.parts import BulkRow
from moreaugrad.bulk_jobs.sources import BulkSource
from moreaugrad.bulk_jobs.thumbnails import Photos, draw_pair
from moreaugrad.files import replacing

REPORT = "report.html"
CLASSES = 24  # the most frequent ones, with a mean map
CONFUSIONS = 20
EXTREMES = 8  # images with the best and the least known maps
FAILURES, KEYS = 50, 5  # groups of errors, and keys named for each
NUMBERS = {  # columns, in words
    "kept": ("Share of entries kept", "Entries of the map that are not zero."),
    "score": ("Class score", "The network's score of the explained class."),
    "relative_error": (
        "Relative error of the map",
        "How far the map may be from the one that endless sampling would give, relative to its size.",
    ),
    "seconds": ("Seconds per image", "Images that were solved together share their time equally."),
}
SHARES = ("kept", "relative_error")  # columns that are shown in per cent


def write_report(
    maps: BulkMaps, path: Path | None = None, images: int = 1000, source: BulkSource | None = None
) -> Path:
    """Write a page about a job, in one file that needs nothing else: numbers, classes, failures, and its maps.

    Args:
        maps: the job, as `open_maps` gives it; it may be unfinished.
        path: the file; None is report.html in the folder of the job.
        images: at most so many maps are shown, spread evenly over the job; 8 best and 8 least known ones come on top.
        source: where the images are, if not where the job found them. Without them maps are shown alone.

    Returns:
        The path of the page.

    Example:
        >>> from moreaugrad.bulk_jobs.report import write_report
        >>> maps = mg.bulk(net, [photo], "maps", "gradient", run=mg.RunOptions(engine="serial"))
        >>> write_report(maps).name
        'report.html'
    """
    validate.at_least("images", images, 1)
    facts = maps.facts
    classes = summary.summarise_classes(facts)
    certain, uncertain = summary.find_extremes(facts, "relative_error", EXTREMES)
    places = sorted({*summary.pick_evenly(len(maps), images), *certain, *uncertain})
    photos = Photos(maps, source)
    entries, means = _draw(maps, places, classes[:CLASSES], photos)
    numbers = {place: number for number, place in enumerate(places)}
    page = _render(
        about=_describe_job(maps),
        finished=maps.finished,
        rows=len(maps),
        total=maps.total,
        distributions={name: summary.describe_numbers(facts, name) for name in NUMBERS},
        converged=_count_converged(maps),
        classes=classes,
        means=means,
        **_judge(maps, classes),
        certain=[entries[numbers[place]] for place in certain],
        uncertain=[entries[numbers[place]] for place in uncertain],
        entries=entries,
        photos=photos,
        failures=summary.group_failures(maps.errors),
    )
    with replacing(found := maps.folder / REPORT if path is None else Path(path)) as file:
        file.write(page.encode())
    return found


def _draw(
    maps: BulkMaps, places: Sequence[int], classes: Iterable[summary.ClassSummary], photos: Photos
) -> tuple[list[dict[str, Any]], list[tuple[summary.ClassSummary, int, str]]]:
    """The entries of some places, and the mean maps of some classes, in one pass over the maps that they need."""
    labels = summary.find_labels(maps.facts)
    means = {each.target: (each, MeanMap()) for each in classes}
    targets = maps.facts.column("target")
    explained = maps.facts.column("error").is_null().to_numpy()
    wanted = {place for place, target in enumerate(targets.to_pylist()) if explained[place] and target in means}
    shown, entries = set(places), []
    every = sorted(shown | wanted)
    for place, row in zip(every, maps.read(every), strict=True):
        if place in shown:
            entries.append(_describe_row(row, labels, photos, _explains_predictions(maps)))
        if place in wanted:
            means[row.target][1].add(row)
    drawn = [
        (each, mean.count, draw_pair(None, mean.values)) for each, mean in means.values() if mean.values is not None
    ]
    return entries, drawn


def _describe_row(row: BulkRow, labels: Mapping[int | None, str], photos: Photos, predicted: bool) -> dict[str, Any]:
    """What the page shows of an image."""
    found: dict[str, Any] = {"key": row.key, "place": row.row}
    if row.truth is not None:
        found["truth"] = labels.get(row.truth, summary.name_class(row.truth))
    if row.map is None:
        return found | {"error": row.error}
    photo = photos.find(row)
    found |= {"label": summary.name_class(row.target, row.label), "picture": draw_pair(photo, row.map)}
    found |= {"alone": photo is None, "zero": not row.map.any()}
    found["wrong"] = predicted and row.truth not in (None, row.target)
    for name in ("score", "kept", "relative_error", "seconds"):
        value = getattr(row, name)
        found[name] = None if value is None else float(f"{value:.4g}")
    return found | {"converged": row.converged}


def _describe_job(maps: BulkMaps) -> dict[str, str]:
    """The heading: what was explained, how, where and when."""
    about, runs, facts = maps.job["configuration"], maps.job["runs"], maps.facts
    options = ", ".join(f"{name} = {value}" for name, value in about["options"].items() if value is not None)
    source = about["source"]
    versions = {", ".join(f"{name} {value}" for name, value in run["versions"].items()): None for run in runs}
    seconds, gradients = (pc.sum(facts.column(name)).as_py() or 0 for name in ("seconds", "gradients"))
    began = [str(run["began"]).replace("T", " ").replace("+00:00", " UTC") for run in runs]
    target = "the predicted one" if about["target"] is None else str(about["target"])
    return {
        "Model": about["model"],
        "Method": about["method"] + (f" with {options}" if options else ""),
        "Explained class": "the true one" if target == "truth" else target,
        "Source": " ".join(str(source[name]) for name in ("kind", "path") if source.get(name)),
        "Images": f"{len(maps):,} of {maps.total:,}" + (", with " if maps.errors else ", without ") + _errors(maps),
        "Cost": f"{gradients:,} gradients, {_duration(seconds)} of computing",
        "Run": (began[0] if len(began) == 1 else f"{len(began)} runs, the first on {began[0]}, the last on {began[-1]}")
        + f"; {', '.join(dict.fromkeys(str(run['device']) for run in runs))}",
        "Versions": "; ".join(versions),
        "Seed": str(about["seed"]),
    }


def _errors(maps: BulkMaps) -> str:
    count = len(maps.errors)
    return f"{count:,} error{'' if count == 1 else 's'}" if count else "errors"


def _explains_predictions(maps: BulkMaps) -> bool:
    job = maps.job["configuration"]
    return job["target"] is None and not job["source"].get("targets")


def _judge(maps: BulkMaps, classes: Sequence[summary.ClassSummary]) -> dict[str, Any]:
    """Accuracy and confusions, where true classes are known and the explained class is the predicted one."""
    known, right = (sum(getattr(each, name) for each in classes) for name in ("known", "right"))
    if not _explains_predictions(maps) or not known:
        return {"known": 0, "right": 0, "confusions": []}
    return {"known": known, "right": right, "confusions": summary.count_confusions(maps.facts, CONFUSIONS)}


def _count_converged(maps: BulkMaps) -> tuple[int, int]:
    """How many solves converged, and of how many it is known."""
    flags = maps.facts.column("converged").drop_null()
    return int(np.count_nonzero(flags.to_numpy())), len(flags)


def _render(**known: Any) -> str:
    here = files(__package__).joinpath("page")
    style, script = (here.joinpath(f"report.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    place = Environment(
        loader=PackageLoader("moreaugrad.bulk_jobs", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    place.filters |= {"number": _number, "percent": _percent, "unit": _with_unit}
    return place.get_template(REPORT).render(
        **known,
        numbers=NUMBERS,
        failures_shown=FAILURES,
        keys_shown=KEYS,
        style=style,
        script=script,
        script_digest=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _number(value: float | None) -> str:
    """Three digits, and no more of large numbers than their whole part."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return _number(share) if share is None else f"{_number(100 * share)} %"


def _with_unit(value: float | None, column: str) -> str:
    """A number of a column as people read it."""
    return _percent(value) if column in SHARES else _number(value)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{_number(seconds)} seconds"
    return f"{_number(seconds / 60)} minutes" if seconds < 7200 else f"{_number(seconds / 3600)} hours"
