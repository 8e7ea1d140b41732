"""Networks whose outputs have a known range, so that nothing else need be known of them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.validate import positive


class Bounded(nn.Module):
    """A network all of whose outputs lie in `bounds`, in whatever precision it is run."""

    bounds: tuple[float, float] = (0.0, 1.0)

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.training = bool(getattr(network, "training", False))


class Clipped(Bounded):
    """min(max(output, low), high) of a network: logits have no range, clipped ones do.

    A range around the logits that occur under the noise gives the strongest certificates; fix it before looking at
    the changed input.
    """

    def __init__(self, network: Any, low: float, high: float) -> None:
        super().__init__(network)
        rules.score_range(low, high)
        self.bounds = (float(low), float(high))

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found: Tensor = self.network(*inputs)
        return found.clamp(*self.bounds)


class Votes(Bounded):
    """1 for the class that a network predicts, 0 for the others. It has no useful gradient: certify it on a grid."""

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found: Tensor = self.network(*inputs)
        return torch.nn.functional.one_hot(found.argmax(1), found.shape[1]).to(found.dtype)


class Odds(Bounded):
    """1/(1 + exp(-(log-odds - centre)/scale)) of each class, log-odds = logit - log sum exp of the other logits.

    Probabilities near 0 and 1 hardly move, so little of them can be certified. Centred on what the log-odds are at one
    input, their range is used up there: fixed at that input, it is one score for all others. `certify(centred=True)`.
    """

    def __init__(self, network: Any, centre: float, scale: float) -> None:
        super().__init__(network)
        positive("scale", scale)
        self.centre, self.scale = centre, scale

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        return self.of_logits(self.network(*inputs))

    def of_logits(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return torch.sigmoid((log_odds(logits) - self.centre) / self.scale)


def log_odds(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """log p/(1 - p) of each class, with all digits where p is near 1, which only the first class can be."""
    whole = logits.logsumexp(1, keepdim=True)
    first = logits.argmax(1, keepdim=True)
    others = whole + torch.log1p(-(logits - whole).exp().clamp(max=0.75))
    beside = logits.scatter(1, first, -torch.inf).logsumexp(1, keepdim=True)
    return logits - others.scatter(1, first, beside)
