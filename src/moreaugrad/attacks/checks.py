"""Checks of what an attack is told: budgets, boxes, and methods that can be attacked at all."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad.validate import inputs, number
from moreaugrad.validate import target as target_form

WITHOUT_SLOPE = ("noise", "pgd", "structured")  # attacks that never differentiate a map


def epsilon(given: Any, unbounded: bool = False) -> None:
    number("epsilon", given)
    if not 0 < given < float("inf") and not (unbounded and given == float("inf")):
        raise ValueError(
            f"epsilon must be a positive finite number, the size of the change in the units of the input, got {given!r}"
        )


def images(given: Any) -> Tensor:
    """One batch of floating-point inputs."""
    if isinstance(given, tuple):
        raise TypeError(f"an attack takes one tensor of inputs (N, ...), got a tuple of {len(given)}")
    return inputs(given)[0]


def class_scores(output: Tensor) -> None:
    if output.ndim != 2 or output.shape[1] < 2:
        raise ValueError(
            f"an attack needs a classifier, one score per image and class (N, K) with K >= 2, "
            f"got an output of shape {tuple(output.shape)}"
        )
    if not bool(torch.isfinite(output).all()):
        raise ValueError(
            "the model must give finite scores, got NaN or infinity; look at its weights, its inputs and its precision"
        )


def classes(given: Any, clean: Tensor) -> Tensor:
    """One class per image; the predicted ones where none is given."""
    if given is None:
        return clean.argmax(1)
    found = torch.as_tensor(target_form(given, len(clean)), device=clean.device)
    if found.is_floating_point() or found.ndim > 1 or (found.numel() not in (1, len(clean))):
        raise ValueError(f"target must be a class, or one class per image, got {given!r} for {len(clean)} images")
    found = found.long().reshape(-1).expand(len(clean)).contiguous()
    if bool(((found < 0) | (found >= clean.shape[1])).any()):
        raise ValueError(f"target must lie in 0..{clean.shape[1] - 1}, the classes of the model, got {given!r}")
    return found


def goals(given: Any, clean: Tensor) -> Tensor:
    """The class that each image is to be taken for."""
    try:
        return classes(given, clean)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("target", "goal")) from None


def box_form(given: Any) -> None:
    if given is None or (isinstance(given, str) and given == "model"):
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(
            f"box must be (low, high), None for no box, or 'model' for what the model knows of its pictures, "
            f"got {given!r}"
        )
    try:
        low, high = (torch.as_tensor(end, dtype=torch.float64, device="cpu") for end in given)
        ordered = bool((low < high).all())
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"box must hold two numbers, or two tensors of one shape, got {given!r}") from None
    if not ordered:
        raise ValueError(f"box must have low below high, got {given!r}")


def inside(x: Tensor, low: Tensor, high: Tensor) -> None:
    """An image outside the box cannot be left where it is."""
    for end in (low, high):
        if end.ndim > x.ndim or any(a not in (1, b) for a, b in zip(end.shape[::-1], x.shape[::-1], strict=False)):
            raise ValueError(
                f"box must have ends that broadcast over the inputs {tuple(x.shape)}, got {tuple(end.shape)}; "
                "give numbers, or one value per channel as (C, 1, 1)"
            )
    slack = 1e-5 * (high - low)
    out = ((x < low - slack) | (x > high + slack)).flatten(1).any(1)
    if bool(out.any()):
        raise ValueError(
            f"every image must lie in the box, got {int(out.sum())} of {len(x)} outside: values from "
            f"{float(x.min()):.4g} to {float(x.max()):.4g}, box from {float(low.min()):.4g} to "
            f"{float(high.max()):.4g}. Give inputs as the model takes them, another box=(low, high), or box=None"
        )


def attackable(method: Any) -> None:
    """A method whose map has a derivative."""
    if isinstance(method, nn.Module) or not hasattr(method, "attribute"):
        raise TypeError(
            f"this attack needs a method, such as METHODS['gradient'](model), got {type(method).__name__}; "
            f"a model alone is attacked by {', '.join(WITHOUT_SLOPE)}"
        )
    if getattr(method, "several", None) is not None:
        raise ValueError("an attack needs one map per image, got a list of eta or sparsity; give one value")
    if not getattr(method, "differentiable", False):
        raise ValueError(
            f"the map of {method.get_name()} cannot be differentiated, so this attack cannot be led by it; "
            f"use {', '.join(WITHOUT_SLOPE)}, which need no slope of the map, or attack another method "
            "and judge this one on the result"
        )


def rule(given: Any, norm: str, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        raise ValueError(f"rule must be one of {list(known)} or None, got {given!r}")
    if given == "gradient" and norm == "linf":
        raise ValueError("rule='gradient' goes with norm='l2', got norm='linf'; use rule='sign'")


def surrogate(given: Any) -> None:
    if given is not None and not callable(given) and given != "softplus":
        raise ValueError(f"surrogate must be 'softplus', a network or None, got {given!r}")


def replaceable(method: Any, fine: bool) -> None:
    if not fine:
        raise TypeError(
            f"a softplus copy needs a method whose network can be exchanged, got {type(method).__name__}; "
            "give surrogate=None, or a method of METHODS"
        )


def top(k: Any) -> None:
    """How many entries count as the most salient."""
    if k is None:
        return
    number("k", k)
    if isinstance(k, Integral):
        if k < 1:
            raise ValueError(f"k must be at least 1 entry, or a share in (0, 1], got {k}")
    elif not 0 < k <= 1:
        raise ValueError(f"k must be a share of the entries in (0, 1], or a whole number of them, got {k}")


def points(given: Any, inputs: Any) -> None:
    """Points of the attack that are there already."""
    if isinstance(given, Tensor) or not len(given):
        raise ValueError("points must be a list of at least one batch of images, got none, or one tensor")
    for each in given:
        if not isinstance(each, Tensor) or each.shape != inputs.shape:
            raise ValueError(f"points must be batches of the inputs' shape {tuple(inputs.shape)}, got {_shape(each)}")


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
