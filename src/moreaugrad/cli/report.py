"""Records -> files and words: a picture, the raw map, a line of JSON, a line for people."""

from __future__ import annotations

import json
import math
import platform
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad.api import ExplainBatch, Record
from moreaugrad.cli.method_options import told
from moreaugrad.files import replacing
from moreaugrad.models.classifier import Classifier
from moreaugrad.plotting import pictures
from moreaugrad.studies.plan import plain

RESULTS = "results.jsonl"


def write(record: Record, out: Path) -> None:
    """OUT/<key>.png and OUT/<key>.npz, each whole or not at all."""
    assert record.explanation is not None
    record.explanation.save(out / f"{record.key}.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an all-zero map was mentioned by the method
        figure = pictures.panel(record.pixels, record.explanation.map[0], f"{record.key}: {headline(record)}")
    pictures.write(figure, out / f"{record.key}.png")


def as_json(record: Record, file: str, batch: ExplainBatch) -> str:
    """One line of strict JSON: what is not a number is null."""
    found: dict[str, Any] = {"file": file, "key": record.key, "model": batch.classifier.name, "method": batch.name}
    if record.explanation is None:
        return _dumped(found | {"error": record.error})
    one = record.explanation
    found |= {"target": record.target, "label": record.label, "score": _number(one.score)}
    found |= {"entries_kept": _number(one.kept), "pixels_kept": _number(one.pixels_kept)}
    found |= {name: _number(getattr(one, name)) for name in ("eta", "envelope", "residual", "converged")}
    found |= {"gradients": None if one.gradients is None else int(one.gradients), "seed": one.seed}
    found |= {"seconds": round(record.seconds, 3), "precision": one.options.get("precision")}
    found |= {name: _number(length) for name, length in record.lengths.items()}
    return _dumped(found | {"options": told(batch.method), "versions": versions()})


def append(line: str, out: Path) -> None:
    with (out / RESULTS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def headline(record: Record) -> str:
    """What was explained, and how much of the image the map keeps."""
    one = record.explanation
    assert one is not None
    named = f"{record.label} (class {record.target})" if record.label else f"class {record.target}"
    parts = [named if record.target is not None else "the only output"]
    if one.score is not None:
        parts.append(f"score {float(one.score):.3g}")
    parts.append(f"{100 * float(one.kept):.3g} % of entries, {100 * float(one.pixels_kept):.3g} % of pixels")
    if one.converged is not None and not bool(one.converged):
        parts.append("not converged")
    return ", ".join(parts)


def cost(record: Record) -> str:
    """Gradients and seconds of a map."""
    one = record.explanation
    assert one is not None
    spent = 0 if one.gradients is None else int(one.gradients)
    return f"{spent:,} gradient{'' if spent == 1 else 's'}, {record.seconds:.2g} s"


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("moreaugrad", "torch")}


def strict(value: Any) -> Any:
    """As strict JSON has it: no NaN, no infinity, no objects."""
    if isinstance(value, dict):
        return {key: strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    found = plain(value)
    return None if isinstance(found, float) and not math.isfinite(found) else found


def write_json(known: dict[str, Any], file: Path) -> None:
    """A whole file of strict JSON, or none."""
    with replacing(file) as handle:
        handle.write((json.dumps(known, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def cut(name: str) -> str:
    """A label that fits above a tile."""
    return name if len(name) <= 28 else f"{name[:25]}..."


def seen(x: Tensor, model: Classifier) -> NDArray[np.float64]:
    """The one image of a batch as a picture in [0, 1]."""
    return channels_last(x[0] * model.std + model.mean).clip(0, 1)


def channels_last(values: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = values.detach().cpu().double().permute(1, 2, 0).numpy()
    return found


def _number(value: Any) -> float | bool | None:
    """The only element of a tensor; None where there is none, or where it is NaN or infinite."""
    found = value.item() if hasattr(value, "item") else value
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _dumped(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, allow_nan=False)
