"""Networks whose outputs have a known range, so that nothing else need be known of them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.checks import certificates as rules
from moreaugrad.checks import positive


class Clipped(nn.Module):
    """min(max(output, low), high) of a network: logits have no range, clipped ones do.

    A range around the logits that occur under the noise gives the strongest certificates; fix it before looking at
    the changed input.
    """

    def __init__(self, network: Any, low: float, high: float) -> None:
        super().__init__()
        rules.score_range(low, high)
        self.network = network
        self.bounds = (float(low), float(high))
        self.training = bool(getattr(network, "training", False))

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found: Tensor = self.network(*inputs)
        return found.clamp(*self.bounds)


class Votes(nn.Module):
    """1 for the class that a network predicts, 0 for the others. It has no useful gradient: certify it on a grid."""

    bounds = (0.0, 1.0)

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.training = bool(getattr(network, "training", False))

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        found: Tensor = self.network(*inputs)
        return torch.nn.functional.one_hot(found.argmax(1), found.shape[1]).to(found.dtype)


class Odds(nn.Module):
    """1/(1 + exp(-(log-odds - centre)/scale)) of each class, log-odds = logit - log sum exp of the other logits.

    Probabilities near 0 and 1 hardly move, so little of them can be certified. Centred on what the log-odds are at one
    input, their range is used up there: fixed at that input, it is one score for all others. `certify(centred=True)`.
    """

    bounds = (0.0, 1.0)

    def __init__(self, network: Any, centre: float, scale: float) -> None:
        super().__init__()
        positive("scale", scale)
        self.network, self.centre, self.scale = network, centre, scale
        self.training = bool(getattr(network, "training", False))

    def forward(self, *inputs: Any) -> Float[Tensor, "n k"]:
        return self.of_logits(self.network(*inputs))

    def of_logits(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return torch.sigmoid((log_odds(logits) - self.centre) / self.scale)


def log_odds(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """log p/(1 - p) of each class, with all digits where p is near 1."""
    own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None].masked_fill(own, -torch.inf).logsumexp(2)
    return logits - others
