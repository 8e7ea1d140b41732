"""Checks of what a patch attack is told: where the patch lies, and what it lies on."""

from __future__ import annotations

from typing import Any

from moreaugrad.validate import at_least

Pair = tuple[int, int]


def pictures(shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        raise ValueError(f"a patch lies on images (N, C, H, W), got inputs of shape {shape}; other attacks take those")


def pair(name: str, given: Any, least: int) -> None:
    """Two whole numbers, for the rows and the columns."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"{name} must be two whole numbers (rows, columns), got {given!r}")
    for each in given:
        at_least(name, each, least)


def size(given: Any) -> None:
    if isinstance(given, tuple | list):
        pair("size", given, 1)
    elif given is not None:
        at_least("size", given, 1)


def fits(corner: Pair, size: Pair, picture: Pair) -> None:
    """The patch lies inside the picture and leaves some of it."""
    if any(start + length > whole for start, length, whole in zip(corner, size, picture, strict=True)):
        raise ValueError(
            f"the patch must lie inside the images of {picture[0]} x {picture[1]} pixels, got {size[0]} x {size[1]} "
            f"at position {corner}; give a smaller size or another position"
        )
    if size == picture:
        raise ValueError(f"the patch must leave some of the image, got a size of {size}, which is all of it")


def steps(rule: Any, step_size: Any) -> None:
    if rule not in (None, "sign"):
        raise ValueError(f"a patch is found by sign steps, so rule must be 'sign', got {rule!r}")
    if step_size is None:
        raise ValueError("step_size must be a number in the units of the input, got None; 0.005 is the usual choice")
