"""What a call must leave alone: the caller's tensors, bit for bit, and all of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ChangedError(Exception):
    """A call changed something that is the caller's. No error that the package may raise."""


@contextmanager
def untouched(given: Iterable[object]) -> Iterator[None]:
    """Raises where models, tensors or arrays were changed, also by a call that was refused."""
    kept = [(each, _describe(each)) for each in _spread(given)]
    try:
        yield
    finally:
        for each, before in kept:
            after = _describe(each)
            changed = [name for name in before if before[name] != after.get(name)]
            if changed:
                raise ChangedError(f"{type(each).__name__} changed: {', '.join(changed)}")


def _spread(given: object) -> Iterator[Any]:
    if isinstance(given, nn.Module | Tensor | np.ndarray):
        yield given
    elif isinstance(given, dict):
        yield from _spread(list(given.values()))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        for each in given:
            yield from _spread(each) if each is not given else ()


def _describe(each: Any) -> dict[str, Any]:
    if isinstance(each, nn.Module):
        return _describe_model(each)
    if isinstance(each, np.ndarray):
        content = each.tobytes() if each.dtype != object else repr(each.tolist()).encode()
        return {"values": content, "dtype": each.dtype, "shape": each.shape, "writable": each.flags.writeable}
    return _describe_tensor(each)


def _describe_tensor(each: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "values": read_bytes(each),
        "shape": tuple(each.shape),
        "dtype": each.dtype,
        "requires_grad": each.requires_grad,
        "graph": each.grad_fn is None,
    }
    if each.layout == torch.strided:
        found["stride"] = each.stride()
    if each.is_leaf:
        found["grad"] = None if each.grad is None else read_bytes(each.grad)
    return found


def read_bytes(each: Tensor) -> bytes:
    """The entries of a tensor as they are stored, so that NaN is equal to itself, and 0 is not -0."""
    with torch.no_grad():
        each = each.detach()
        if each.device.type == "meta":
            return b""
        if each.is_nested:
            return b"".join(map(read_bytes, each.unbind()))
        if each.layout != torch.strided:
            each = each.to_dense()
        whole = each.contiguous().resolve_conj().resolve_neg()
        return whole.clone().reshape(-1).view(torch.uint8).numpy().tobytes() if whole.numel() else b""


def _describe_model(model: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        hooks = [len(value) for key, value in sorted(vars(module).items()) if key.endswith("_hooks")]
        found[f"flags of {name}"] = (module.training, hooks, sorted(vars(module)), module.forward == module.forward)
    _add_tensors(found, model.named_parameters())
    _add_tensors(found, model.named_buffers())
    return found


def _add_tensors(found: dict[str, Any], named: Iterable[tuple[str, Tensor]]) -> None:
    for name, each in named:
        found |= {f"{key} of {name}": value for key, value in _describe_tensor(each).items()}


def guard(call: Callable[[], object], *given: object) -> object:
    """The answer of a call that leaves these as they were."""
    with untouched(given):
        return call()
