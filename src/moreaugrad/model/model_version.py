"""What tells whether a model is still the one that was seen before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad.types import ForwardFunc

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def mark(forward: ForwardFunc) -> Any:
    """Changes when the model's weights, layers, hooks or plain attributes do, so that no copy grows old."""
    if not isinstance(forward, nn.Module):
        return None
    tensors = [*forward.parameters(), *forward.buffers()]
    weights = [(t.data_ptr(), -1 if t.is_inference() else t._version, t.dtype) for t in tensors]
    with torch.no_grad():  # `.data` is changed without a trace, so the values are asked too
        flat = [t.detach().flatten() for t in tensors if t.is_floating_point() and t.numel()]
        halves = [t[: -(-len(t) // 2)] for t in flat]
        seen = [torch.stack(_together(each)) for each in _by_kind([*flat, *halves])]
    values = [each.double().tolist() for each in seen]
    layers = [
        (
            id(module),
            [(key, value) for key, value in vars(module).items() if isinstance(value, int | float | str)],
            [list(vars(module).get(kind, ())) for kind in HOOKS],
        )
        for module in forward.modules()
    ]
    return weights, values, layers


def _by_kind(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Tensors of one device and precision each, for those are looked at in one launch."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return list(kinds.values())


def _together(tensors: list[Tensor]) -> list[Tensor]:
    """Two numbers of each tensor that hardly ever stay the same when it changes."""
    return [*torch._foreach_norm(tensors), *torch._foreach_max(tensors)]
