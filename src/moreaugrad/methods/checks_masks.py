"""Checks of the methods that optimise a mask, and their wording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn


def probability(score: str, name: str) -> None:
    """A mask is held against the probability of a class, which has bounds; a logit has none."""
    if score != "prob":
        raise ValueError(f"score must be 'prob' for {name}, which is defined on probabilities, got {score!r}")


def pays(name: str, budget: int, least: int) -> None:
    """A budget of at least one step."""
    if budget < least:
        raise ValueError(f"budget must be at least {least}, what one step of {name} spends, got {budget}")


def share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}")


def pictures(shapes: Sequence[tuple[int, ...]], name: str) -> None:
    if len(shapes) != 1 or len(shapes[0]) != 3:
        shown = " and ".join(str(("N", *shape)).replace("'", "") for shape in shapes)
        raise ValueError(f"inputs must be one batch of pictures (N, C, H, W) for {name}, got {shown}")


def replaceable(model: Any, defence: str) -> None:
    """A model whose activations can be exchanged in a copy."""
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        kind = "a scripted module" if isinstance(model, nn.Module) else type(model).__name__
        raise TypeError(
            f"defence={defence!r} exchanges the activations of a copy of the model, which must be a torch.nn.Module, "
            f"got {kind}; give the module itself, or defence=None for a plain mask"
        )


def no_functions(found: Iterable[str]) -> None:
    """No activation was called as a function, for that cannot be exchanged."""
    names = sorted(set(found))
    if names:
        raise ValueError(
            f"every activation must be a module to be defended, got {', '.join(f'{name}()' for name in names)} called "
            "in a forward; write it as a module (nn.ReLU, nn.SiLU, ...), or give defence=None for a plain mask"
        )
