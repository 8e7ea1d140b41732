"""Checks of mask networks, their files and the classifiers that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from moreaugrad.validate import _modules

TRAIN = "moreaugrad train-mask --data FOLDER --model NAME --out FILE"


def classifier(forward: object) -> nn.Module:
    """The module that a model is, or that the callable holds."""
    found = next((module for _, module in _modules(forward, depth=3)), None)
    if found is None:
        raise TypeError(
            "the model must be an nn.Module, or hold one, for its feature maps to be read, "
            f"got {type(forward).__name__}; pass the classifier itself"
        )
    return found


def stages(found: Collection[Any]) -> None:
    if not found:
        raise ValueError(
            "the classifier must have feature maps (N, C, H, W), or tokens of a square grid, for a mask network to "
            "read, got none among the outputs of its modules; take another method"
        )


def paths(wanted: Collection[str], there: Collection[str]) -> None:
    if missing := [name for name in wanted if name not in there]:
        raise ValueError(
            f"the classifier must have the feature maps {list(wanted)}, got none at {missing}; "
            f"train a mask network for it: {TRAIN}"
        )


def same_classifier(same: bool, source: object) -> None:
    if not same:
        raise ValueError(
            f"the mask network must be used with the classifier that it was trained for, got another one for "
            f"{str(source)!r}; load the weights that it was trained with, or train anew: {TRAIN}"
        )


def network_file(given: object) -> Path:
    """A file that can be opened."""
    if given is None:
        raise ValueError(f"network must be the file of a trained mask network, got None; train one: {TRAIN}")
    if not isinstance(given, str | Path):
        raise TypeError(f"network must be a file or a MaskNet, got {type(given).__name__}; train one: {TRAIN}")
    path = Path(given)
    if not path.is_file():
        raise ValueError(f"network must be the file of a trained mask network, got {str(given)!r}; train one: {TRAIN}")
    return path


def notes(found: Mapping[str, str], form: str, source: object) -> None:
    wanted = ("stages", "channels", "classes", "width", "layout")
    if found.get("format") != form or any(name not in found for name in wanted):
        raise ValueError(
            f"network must be a file written by train-mask ({form!r}), got {str(source)!r}, which says "
            f"{found.get('format')!r}; train one: {TRAIN}"
        )


def tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: object) -> None:
    """Every tensor of the network, and no other."""
    needed = {name: tuple(t.shape) for name, t in wanted.items() if t.is_floating_point()}
    got = {name: tuple(t.shape) for name, t in found.items()}
    if needed != got:
        odd = sorted(name for name in needed | got if needed.get(name) != got.get(name))
        raise ValueError(
            f"network must hold the tensors that its notes promise, got {str(source)!r} with other {odd[:3]}; "
            f"the file is damaged: train anew: {TRAIN}"
        )


def images(shape: tuple[int, ...], inputs: int) -> None:
    if inputs != 1 or len(shape) != 4:
        raise ValueError(
            f"a mask network explains one batch of images (N, C, H, W), got {inputs} input(s), "
            f"the first of shape {shape}"
        )


def classes(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"the mask network knows {wanted} classes, got a classifier with {found}; train anew: {TRAIN}")


def class_numbers(target: object) -> None:
    raise ValueError(f"a mask network explains one class per image, got target {target!r}; give class numbers")
