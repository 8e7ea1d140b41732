"""What a file of an explanation must hold to be one: fields that are known and fit each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

PER_IMAGE = ("eta", "score", "envelope", "residual", "converged", "gradients")
LIKE_MAP = ("delta", "stderr")
OTHERS = ("map", "coarse", "moments", "target", "seed", "method", "options", "source", "source_inputs")


def find_fault(values: Mapping[str, Any]) -> str | None:
    """Why values that were read make no explanation, in a few words; None where they do."""
    if unknown := values.keys() - {*PER_IMAGE, *LIKE_MAP, *OTHERS}:
        return f"fields that it does not know ({', '.join(sorted(unknown)):.80})"
    maps = _as_parts(values.get("map"))
    if not maps or not all(_is_real(part) and part.ndim > 1 and len(part) == len(maps[0]) for part in maps):
        return "no maps of shape (N, ...)"
    rows, shapes = len(maps[0]), [part.shape for part in maps]
    for name in LIKE_MAP:
        parts = _as_parts(values.get(name))
        if values.get(name) is not None and not (
            all(map(_is_real, parts)) and [part.shape for part in parts] == shapes
        ):
            return f"{name} of another shape than the maps"
    for name in PER_IMAGE:
        value = values.get(name)
        if value is not None and not (_is_number(value) and value.shape == (rows,)):
            return f"{name} without one number for each of the {rows} maps"
    coarse = values.get("coarse")
    if coarse is not None and not (_is_real(coarse) and coarse.ndim > 1 and len(coarse) == rows):
        return "a coarse map of another length than the maps"
    return _find_odd_text(values, rows) or _find_odd_source(values, rows)


def _as_parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_complex()


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _find_odd_text(values: Mapping[str, Any], rows: int) -> str | None:
    """What is wrong with the target, and with the fields that say how maps were made."""
    if values.get("moments") is not None:
        return "moments, which are not stored"
    if not (values.get("seed") is None or _is_whole(values["seed"])):
        return "a seed that is no whole number"
    options = values.get("options", {})
    if not isinstance(values.get("method", ""), str) or not isinstance(options, dict):
        return "a method or options that are none"
    listed = [each for value in options.values() for each in (value if isinstance(value, list | tuple) else [value])]
    if not all(map(_is_plain, listed)):
        return "options that are neither numbers nor text"
    if not isinstance(options.get("preset"), str | None) or not isinstance(options.get("score"), str | None):
        return "a preset or score that is no text"
    return None if _is_target(values.get("target"), rows) else f"a target that does not fit {rows} maps"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_target(target: Any, rows: int) -> bool:
    """Whether it has one of Captum's forms."""
    if isinstance(target, Tensor):
        whole = not target.is_floating_point() and not target.is_complex() and target.ndim < 2
        return whole and target.numel() in (1, rows)
    if isinstance(target, list):
        return len(target) in (1, rows) and all(
            isinstance(each, int | tuple) and _is_target(each, 1) for each in target
        )
    return target is None or _is_whole(target) or (isinstance(target, tuple) and all(map(_is_whole, target)))


def _find_odd_source(values: Mapping[str, Any], rows: int) -> str | None:
    """What is wrong with the inputs that were explained."""
    inputs, source = values.get("source_inputs"), values.get("source")
    if inputs is None:
        return None if source is None or isinstance(source, dict) else "a source that is none"
    if not (isinstance(inputs, tuple) and all(_is_number(each) and each.ndim > 1 for each in inputs)):
        return "inputs that are no tensors"
    if {len(each) for each in inputs} != {rows} or not all(each.numel() for each in inputs):
        return f"inputs that are not those of {rows} maps"
    if not isinstance(source, dict) or source.keys() != {"labels", "photos"}:
        return "inputs without their photos and labels"
    labels, photos = source["labels"], source["photos"]
    if not isinstance(labels, dict) or not all(_is_label(*each) for each in labels.items()):
        return "labels that are no names of classes"
    whole = isinstance(photos, list) and len(photos) in (0, rows) and all(map(_is_photo, photos))
    return None if whole else f"photos that are not those of {rows} maps"


def _is_label(target: str, name: Any) -> bool:
    return target.removeprefix("-").isdecimal() and len(target) < 20 and isinstance(name, str)


def _is_photo(photo: Any) -> bool:
    """Width and height, and the part that the network saw, if that is known."""
    if not isinstance(photo, dict) or photo.keys() != {"size", "region"}:
        return False
    size, region = photo["size"], photo["region"]
    if not (isinstance(size, tuple) and len(size) == 2 and all(_is_whole(each) and each > 0 for each in size)):
        return False
    if region is None:
        return True
    numbers = isinstance(region, tuple) and len(region) == 4 and all(isinstance(each, int | float) for each in region)
    return numbers and all(map(math.isfinite, region))
