"""Networks whose outputs have a known range, so that nothing else need be known of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate


def check_range(low: float, high: float) -> None:
    for name, value in (("low", low), ("high", high)):
        validate.number(name, value)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(
            f"low and high must be finite with low < high, got low={low!r} and high={high!r}; "
            "a logit has no range: clip it, or take score='prob', whose range is 0 to 1"
        )


class Bounded(nn.Module):
    """A network all of whose outputs lie in `bounds`, in whatever precision it is run."""

    bounds: tuple[float, float] = (0.0, 1.0)

    def __init__(self, network: Any) -> None:
        super().__init__()
        validate.runnable(network)
        self.network = network
        self.training = bool(getattr(network, "training", False))


class Clipped(Bounded):
    """`min(max(output, low), high)` of a network: logits have no range, clipped ones do.

    Use it to certify the maps of a network of which nothing else is known. A range around the logits that occur under
    the noise gives the strongest certificates; fix it before looking at the changed input.

    Args:
        network: the classifier, a module or callable that returns logits of shape (N, classes).
        low: smallest output, in units of the logits.
        high: largest output.

    Example:
        >>> clipped = mg.Clipped(net, -2.0, 2.0)
        >>> bool((clipped(x).abs() <= 2).all())
        True
    """

    def __init__(self, network: Any, low: float, high: float) -> None:
        super().__init__(network)
        check_range(low, high)
        self.bounds = (float(low), float(high))

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found = validate.output(self.network(*inputs), len(inputs[0]))
        return found.clamp(*self.bounds)


class Votes(Bounded):
    """1 for the class that a network predicts, 0 for the others.

    It has no useful gradient: certify it on a grid, by forward passes alone.

    Args:
        network: the classifier, a module or callable that returns logits of shape (N, classes).

    Example:
        >>> mg.Votes(net)(x).sum(1)
        tensor([1., 1.])
    """

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found = _read_logits(self.network(*inputs), len(inputs[0]))
        return torch.nn.functional.one_hot(found.argmax(1), found.shape[1]).to(found.dtype)


class Odds(Bounded):
    """`1/(1 + exp(-(log-odds - centre)/scale))` of each class, log-odds = logit - log sum exp of the other logits.

    Probabilities near 0 and 1 hardly move, so little of them can be certified. Centred on the log-odds at one input,
    this score uses its whole range there; fixed at that input, it is one score for all others.
    `mg.CertifiedProblem(centred=True)` chooses both numbers.

    Args:
        network: the classifier, a module or callable that returns logits of shape (N, classes).
        centre: the log-odds at which the score is 1/2.
        scale: width of the transition, in units of the log-odds; positive.

    Example:
        >>> odds = mg.Odds(net, centre=0.0, scale=1.0)  # the probabilities
        >>> torch.allclose(odds(x), net(x).softmax(1), atol=1e-6)
        True
    """

    def __init__(self, network: Any, centre: float, scale: float) -> None:
        super().__init__(network)
        validate.positive("scale", scale)
        validate.number("centre", centre)
        if not math.isfinite(centre):
            raise ValueError(f"centre must be a finite number, got {centre!r}")
        self.centre, self.scale = centre, scale

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        return self.of_logits(_read_logits(self.network(*inputs), len(inputs[0])))

    def of_logits(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return torch.sigmoid((log_odds(logits) - self.centre) / self.scale)


def _read_logits(found: Any, rows: int) -> Float[Tensor, "n k"]:
    logits = validate.output(found, rows)
    if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise ValueError(
            "the network must return logits (N, classes) of at least two classes, got an output of shape "
            f"{tuple(logits.shape)} of {logits.dtype}"
        )
    return logits


def log_odds(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """log p/(1 - p) of each class, with all digits where p is near 1, which only the first class can be."""
    whole = logits.logsumexp(1, keepdim=True)
    first = logits.argmax(1, keepdim=True)
    others = whole + torch.log1p(-(logits - whole).exp().clamp(max=0.75))
    beside = logits.scatter(1, first, -torch.inf).logsumexp(1, keepdim=True)
    return logits - others.scatter(1, first, beside)
