"""Checks of what the fooling of a network is told: its data, classes, and a network whose weights can be trained."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad.attacks.checks import classes, images
from moreaugrad.validate import at_least

FORM = "(x, y), images and their classes as two tensors, or an iterable of such pairs, as a DataLoader is"


def no_ball(epsilon: float) -> None:
    if epsilon != inf:
        raise ValueError(
            f"model fooling changes weights and no input, so it has no epsilon, got {epsilon}; leave it out"
        )


def network(model: Any) -> nn.Module:
    """The module whose weights are copied and trained."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module) or not any(p.is_floating_point() for p in model.parameters()):
        raise TypeError(
            "model fooling trains a copy of the model's weights, so the model must be a torch.nn.Module that has some, "
            f"got {type(model).__name__}"
        )
    return model


def two_classes(kind: str, given: Any) -> None:
    if (kind == "active") != (given is not None):
        raise ValueError(
            f"classes goes with kind='active', and only with it, got kind={kind!r} and classes={given!r}; "
            "give the two classes whose maps are to be exchanged, as in classes=(3, 5)"
        )
    if given is None:
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"classes must be two classes, as in classes=(3, 5), got {given!r}")
    for each in given:
        at_least("classes", each, 0)
    if given[0] == given[1]:
        raise ValueError(f"classes must be two different ones, got {given!r}")


def known(given: Any, count: int) -> None:
    if given is not None and max(given) >= count:
        raise ValueError(f"classes must lie in 0..{count - 1}, the classes of the model, got {given!r}")


def pairs(name: str, given: Any) -> bool:
    """Whether data is one pair of tensors; refuses what is neither that nor an iterable."""
    if isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(each, Tensor) for each in given):
        return True
    if isinstance(given, Tensor | str | dict) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be {FORM}, got {type(given).__name__}")
    return False


def pair(name: str, given: Any, count: int) -> tuple[Tensor, Tensor]:
    """Images, and one class for each of them out of `count`."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"{name} must be {FORM}, got {type(given).__name__} in it")
    x = images(given[0])
    if given[1] is None:
        raise ValueError(f"{name} must hold a class for each image, got None")
    return x, classes(given[1], torch.empty(1, 1, device=x.device).expand(len(x), count))


def judged_on(given: Any, tensors: bool) -> None:
    if given is None and not tensors:
        raise ValueError("validation must be given where the data is an iterable, got None; give (x, y) to judge it on")


def some(name: str, given: Any) -> None:
    if not given:
        raise ValueError(f"{name} must hold at least one batch, got none")


def trainable(found: bool, who: str) -> None:
    if not found:
        raise ValueError(
            f"the map of {who} must have a derivative by the model's weights to be fooled, got none; "
            "take another method, such as `gradcam` or `gradient`"
        )


def finite(loss: Tensor, step: int) -> None:
    if not bool(loss.isfinite()):
        raise ValueError(f"the loss must stay finite, got NaN or infinity at step {step}; lower lr or lam")
