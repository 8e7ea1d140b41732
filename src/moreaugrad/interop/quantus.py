"""Maps as the metrics of Quantus ask for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.interop.method_factory import MakeMethod, check_method, make_any_method

Array: TypeAlias = NDArray[Any]
_TINY = 1e-12  # of the entries that stand for an all-zero map
_FOR_THE_METRIC = ("abs", "normalise", "normalise_func", "normalise_func_kwargs", "normalize", "channel_first")


def quantus_explain(
    method: MakeMethod = "sparse_moreau", *, signed: bool = False, **options: Any
) -> Callable[..., Array]:
    """Makes an `explain_func` for the metrics of Quantus.

    Quantus divides by the largest entry of a map and refuses batches that are all zero or all negative, so an all-zero
    map is replaced by noise too small to matter elsewhere, and in an all-negative batch the largest entry becomes zero.
    Both give a warning, because the metric then says nothing about the map.

    Args:
        method: a key of `METHODS`, a method class, or anything that makes an object with `attribute` of a model.
        signed: return the map as it is; else the sum of its absolute values over the channels, (N, 1, H, W).
        **options: options of the method. Those that Quantus passes on from `explain_func_kwargs` come before them.

    Returns:
        A function `explain_func(model, inputs, targets, **kwargs)`, which takes and returns arrays. Of Quantus' own
        keywords it knows `device`; `abs` and `normalise` are left to the metric.

    Example:
        >>> explain_func = mg.quantus_explain("smoothgrad", samples=8)
        >>> explain_func(model=net, inputs=x.numpy(), targets=torch.tensor([3, 1]).numpy()).shape
        (2, 1, 16, 16)
    """
    check_method(method, options)
    last: dict[str, Any] = {}  # the method of the last call: metrics explain one model many times

    def explain_func(model: Any, inputs: Any, targets: Any, **given: Any) -> Array:
        device = given.pop("device", None)
        wanted = options | {key: value for key, value in given.items() if key not in _FOR_THE_METRIC}
        before = last.get("options", {})
        same = before.keys() == wanted.keys() and all(before[key] is wanted[key] for key in wanted)
        if last.get("model") is not model or not same:
            last.update(model=model, options=wanted, method=make_any_method(method, model, wanted))
        like = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        x = _as_tensor("inputs", inputs)
        x = x.to(device, torch.float32) if like is None else x.to(like.device, like.dtype)
        target = _as_tensor("targets", targets).to(x.device).long().reshape(-1)
        maps = last["method"].attribute(x, target=target).detach()
        return _acceptable(maps, signed)

    return explain_func


def _as_tensor(name: str, given: Any) -> Tensor:
    try:
        return given.detach() if isinstance(given, Tensor) else validate.read_array(given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {type(given).__name__} ({error})") from None


def _acceptable(maps: Tensor, signed: bool) -> Array:
    """Maps that pass the checks of Quantus and can be divided by their largest entries."""
    if not signed and maps.ndim == 4:
        maps = maps.abs().sum(1, keepdim=True)
    elif not signed:
        maps = maps.abs()
    found: Array = maps.float().cpu().numpy()
    flat = found.reshape(len(found), -1)
    zero: Array = np.asarray(~flat.any(axis=1))
    if zero.any():
        flat[zero] = _TINY * np.random.default_rng(0).random(flat[zero].shape, dtype=np.float32)
        _warn(f"{zero.sum()} of {len(zero)} maps are all zero")
    if (flat < 0).all():
        flat.flat[flat.argmax()] = 0.0
        _warn("every entry of the batch is negative")
    return found


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}, which Quantus refuses; changed as little as it asks for, but its metric then says nothing of them",
        UserWarning,
        stacklevel=4,
    )
