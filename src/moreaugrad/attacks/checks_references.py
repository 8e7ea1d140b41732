"""Checks of what an image is compared with."""

from __future__ import annotations

from moreaugrad.registry import unknown

NAMED = ("black", "zero")


def named(given: object) -> None:
    """The name of a baseline; tensors come with the call."""
    if given is None:
        return
    if not isinstance(given, str):
        raise TypeError(
            f"baseline must be one of {list(NAMED)}, got {type(given).__name__}; "
            "give a tensor with the call: attribute(x, target, baselines=tensor)"
        )
    if given not in NAMED:
        raise unknown("baseline", given, list(NAMED))


def rescalable(unserved: list[str], strict: bool) -> None:
    """Every operation of a network is linear, an activation or a max-pooling."""
    if "_softmax" in unserved and strict and len(unserved) == 1:
        raise ValueError(
            "DeepLIFT needs a network that returns logits, got a softmax in it; leave it out, and explain its "
            "probabilities by score='prob'"
        )
    if unserved and strict:
        raise ValueError(
            "DeepLIFT needs a network of linear layers, max-pooling and activations of one number (ReLU, ReLU6, ELU, "
            f"LeakyReLU, Softplus, Sigmoid, Tanh), got {', '.join(unserved)}; use the method `integrated_gradients`, "
            "which serves any network, or strict=False, which differentiates the others as usual"
        )


def run_as_it_is(precision: str | None, compiled: bool | None) -> None:
    if precision not in (None, "float32") or compiled:
        raise ValueError(
            f"precision must be 'float32' and compile False for DeepLIFT, whose rules hold on to each activation, "
            f"got precision={precision!r} and compile={compiled!r}; leave them out"
        )
