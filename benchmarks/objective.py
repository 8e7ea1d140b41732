"""The objective that the solvers minimise, on fresh noise: written from its definition, without the library."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 8  # noise vectors per call of the model


@torch.no_grad()
def objective(
    model: torch.nn.Module, x: Tensor, target: Tensor, delta: Tensor, eta: float | Tensor, samples: int = 512
) -> Tensor:
    """The objective F of each image (rho 1, relative noise 0.1, logit) on noise that no solver has used."""
    sigma = 0.1 * (x.flatten(1).amax(1) - x.flatten(1).amin(1)).view(-1, 1, 1, 1)
    generator = torch.Generator(x.device).manual_seed(2**40 + 1)
    total = torch.zeros(len(x), device=x.device)
    for start in range(0, samples, CHUNK):
        count = min(CHUNK, samples - start)
        noise = torch.randn((count, 1, *x.shape[1:]), device=x.device, generator=generator)
        rows = (x + delta + sigma * noise).flatten(0, 1).contiguous(memory_format=torch.channels_last)
        total += model(rows).gather(1, target.repeat(count)[:, None]).view(count, -1).sum(0)
    return total / samples + delta.flatten(1).square().sum(1) / 2 + eta * delta.flatten(1).abs().sum(1)
