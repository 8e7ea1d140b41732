"""Where a network runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from moreaugrad import validate

Device = str | torch.device | None


def best_device(device: Device) -> torch.device:
    """The device asked for; for None or "auto" a GPU if there is one: of CUDA, else of Apple, else of Intel."""
    if device in (None, "auto"):
        there = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
        device = next((name for name, backend in there.items() if backend.is_available()), "cpu")
    return validate.device(device)


def device_of(network: Any, asked: Device) -> torch.device | None:
    """Where the network is; it belongs to the caller, so it is not moved."""
    tensor = next(network.parameters(), next(network.buffers(), None)) if isinstance(network, nn.Module) else None
    if tensor is None:
        return None if asked is None else validate.device(asked)
    if asked is not None and validate.device(asked).type != tensor.device.type:
        raise ValueError(
            f"device must be where the model is, {tensor.device}, got {str(asked)!r}; move it: model.to(...)"
        )
    return tensor.device
