"""Checks of networks whose Lipschitz constant is asked for: which layer stands in the way, and the way out."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from moreaugrad.validate import at_least, number

_WAY = "give lipschitz= yourself, or the layer a method `smoothness() -> Smoothness`"


def constants(lipschitz: float, curvature: float) -> None:
    """Two numbers >= 0, of which either may be infinite."""
    for name, value in (("lipschitz", lipschitz), ("curvature", curvature)):
        number(name, value)
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0, got {value!r}; math.inf stands for an unknown one")


def module(given: object) -> None:
    if not isinstance(given, nn.Module):
        raise TypeError(f"the network must be a torch.nn.Module, got {type(given).__name__}; {_WAY}")


def untouched(given: nn.Module) -> None:
    """Hooks, and a forward of the instance's own, may compute anything."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if "forward" in vars(given) or any(getattr(given, name, None) for name in hooks):
        raise TypeError(
            f"every layer must compute what its kind says, got {type(given).__name__} with hooks or a forward of "
            f"its own, as weight_norm and spectral_norm have; fold them first, or {_WAY}"
        )


def unknown_layer(given: nn.Module) -> TypeError:
    return TypeError(f"every layer must have a known Lipschitz constant, got {type(given).__name__}; {_WAY}")


def holds(given: nn.Module, condition: bool, needed: str) -> None:
    """A layer of a known kind, but with an option under which its constant is not known."""
    if not condition:
        raise ValueError(
            f"{type(given).__name__} must have {needed} for its Lipschitz constant to be known, got {given}; {_WAY}"
        )


def evaluating(given: nn.Module) -> None:
    """A layer that acts otherwise in training, where it has no constant."""
    if given.training:
        raise ValueError(
            f"{type(given).__name__} must be in eval mode for its Lipschitz constant to be known, got training mode; "
            "call model.eval() first"
        )


def finite(what: str, weights: Tensor) -> None:
    if not bool(weights.isfinite().all()):
        raise ValueError(f"{what} must be finite, got {int((~weights.isfinite()).sum())} numbers that are not")


def told(given: nn.Module, answer: Any, kind: type) -> None:
    """What a layer's own method says of it."""
    if not isinstance(answer, kind):
        raise TypeError(
            f"{type(given).__name__}.smoothness() must return Smoothness(lipschitz, curvature), "
            f"got {type(answer).__name__}"
        )


def row(of: int, rows: int | None) -> None:
    """A class among the rows of the last layer."""
    at_least("of", of, 0)
    if rows is None:
        raise ValueError(f"of={of} must name a row of a last layer nn.Linear, got a network without; leave `of` out")
    if of >= rows:
        raise ValueError(f"of must be a class of the network, 0..{rows - 1}, got {of}")
