"""Commands that report on one image: a JSON file, a picture and a few lines."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from moreaugrad.cli.checks import make_output
from moreaugrad.cli.options import ModelOptions
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import name_source, printable
from moreaugrad.files import replacing
from moreaugrad.methods.options import plain
from moreaugrad.models.classifier import Classifier
from moreaugrad.plotting import pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts = dict[str, Any]
# what a command finds out about a picture: the facts, the same in lines for people, and drawn
Findings = tuple[Facts, Callable[[Facts], list[str]], Callable[[Facts], "Figure"]]


def report_on_image(
    image: Path,
    suffix: str,
    model: ModelOptions,
    out: Path,
    examine: Callable[[Classifier, Image.Image], Findings],
    terminal: Terminal,
) -> int:
    """Examine one image and write OUT/<image>_<suffix>.json and .png, each whole or not at all; the exit code."""
    terminal.hear_warnings()
    picture, key = read_image(image), name_source(image)
    data, drawing = (out / f"{key}_{suffix}.{end}" for end in ("json", "png"))
    make_output(out, [data.name, drawing.name], [image])
    facts, describe, draw = examine(model.load(terminal), picture)
    known = strict({"file": printable(str(image)), "key": key, **facts})
    with replacing(data) as handle:
        handle.write((json.dumps(known, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the method has warned of an all-zero map already
        figure = draw(known)
    pictures.write(figure, drawing)
    for line in (*describe(known), f"-> {drawing}, {data}"):
        terminal.say(line)
    terminal.result(json.dumps(known, ensure_ascii=False, allow_nan=False))
    return 0


def strict(value: Any) -> Any:
    """As strict JSON has it: no NaN, no infinity, no objects."""
    if isinstance(value, dict):
        return {key: strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    found = plain(value)
    return None if isinstance(found, float) and not math.isfinite(found) else found


def shorten(name: str) -> str:
    """A label that fits above a tile."""
    return name if len(name) <= 28 else f"{name[:25]}..."


def to_picture(x: Tensor, model: Classifier) -> NDArray[np.float64]:
    """The one image of a preprocessed batch as a picture in [0, 1]."""
    return channels_last(x[0] * model.std + model.mean).clip(0, 1)


def channels_last(values: Tensor) -> NDArray[np.float64]:
    """(C, H, W) -> (H, W, C)."""
    found: NDArray[np.float64] = values.detach().cpu().double().permute(1, 2, 0).numpy()
    return found
