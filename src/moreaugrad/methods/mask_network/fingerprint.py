"""Identifies the classifier of a mask network by its weights, on any device and in any precision."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.methods.mask_network.encoder import bare

NEAR = 0.01  # of a tensor's norm: rounding to bfloat16 moves it by a fifth of that, any training by more
SIGNS = 3


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Names and shapes exactly; of each tensor its norm and three sums under fixed random signs, to 1 %."""

    layout: str
    sketch: Float[Tensor, "t 4"]

    @classmethod
    def of(cls, model: nn.Module) -> Fingerprint:
        state = {name: t.detach() for name, t in bare(model).state_dict().items() if t.is_floating_point()}
        layout = sha256("\n".join(f"{name} {tuple(t.shape)}" for name, t in state.items()).encode()).hexdigest()
        signs = _signs(max((t.numel() for t in state.values()), default=0))
        rows = [_row(tensor.cpu().double().flatten(), signs) for tensor in state.values()]
        return cls(layout, torch.stack(rows) if rows else torch.zeros(0, 1 + SIGNS, dtype=torch.float64))

    def same(self, other: Fingerprint) -> bool:
        """Whether both are of one classifier."""
        if self.layout != other.layout or self.sketch.shape != other.sketch.shape:
            return False
        norms = torch.maximum(self.sketch[:, 0], other.sketch[:, 0])
        far = (self.sketch - other.sketch).abs().amax(1) if len(norms) else norms
        return bool((far <= NEAR * norms + 1e-6).all())


def _signs(length: int) -> Float[Tensor, "s m"]:
    """The same in every process and version: the raw stream of a generator that has a published definition."""
    raw = np.random.PCG64(0).random_raw(length // 8 + 1).astype("<u8").view(np.uint8)[:length]
    bits = torch.from_numpy(raw.copy())
    return torch.stack([(bits >> place & 1).double() * 2 - 1 for place in range(SIGNS)])


def _row(flat: Float[Tensor, "m"], signs: Float[Tensor, "s k"]) -> Float[Tensor, "4"]:
    return torch.cat([flat.norm()[None], signs[:, : len(flat)] @ flat])
