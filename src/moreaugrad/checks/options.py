"""Checks of numbers, names and groups that a method is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from moreaugrad.tables import unknown

_WAYS = {  # out of a number that does not fit
    "rho": "; 1.0 is the usual choice, and the method `gradient` is the limit of small rho",
    "eta": "; 0 means no prior, and sparsity= chooses eta for you",
    "noise_level": "; 0.1 is the usual choice, and smoothing=None means no noise",
    "sigma": "; smoothing=None means no noise",
}


def positive(name: str, value: float) -> None:
    number(name, value)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}{_WAYS.get(name, '')}")


def not_negative(name: str, value: float) -> None:
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}{_WAYS.get(name, '')}")


def at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")


def smoothing(noise_level: float | None, samples: int, sigma: float | None) -> None:
    if noise_level is not None and sigma is not None:
        raise ValueError(
            f"noise_level (relative to each image's range) and sigma (absolute) exclude each other, "
            f"got noise_level={noise_level} and sigma={sigma}; give one"
        )
    for name, value in (("noise_level", noise_level), ("sigma", sigma)):
        if value is not None:
            positive(name, value)
    at_least("samples", samples, 1)


def certifiable(bounds: Any, sigma: float | None) -> None:
    """rho="certified" needs the curvature of the score, which a range and a fixed sigma bound."""
    if bounds is None or sigma is None:
        raise ValueError(
            "rho='certified' needs a score with a known range under noise of a fixed sigma, got "
            f"{'no range' if bounds is None else 'no fresh noise of a fixed sigma'}; take score='prob' and "
            "Smoothing(sigma=...), or give rho='certified' to certify, with what else is known of the network"
        )


def smooth(given: object, kind: type, needed: bool = False) -> None:
    if given is None and needed:
        raise ValueError("smoothing must be a Smoothing, got None; without noise use the method `gradient`")
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"smoothing must be a Smoothing or None, got {given!r}; write Smoothing(noise_level=0.1)")


def one_each(name: str, value: object, images: int) -> None:
    if isinstance(value, Tensor) and value.numel() not in (1, images):
        raise ValueError(f"{name} must be one number, or one per image, got {value.numel()} for {images} images")


def weights(eta: Any, sparsity: Any) -> None:
    if eta is not None and sparsity is not None:
        raise ValueError(
            f"eta and sparsity exclude each other, got eta={eta} and sparsity={sparsity}: "
            "sparsity chooses eta for each image, so give one of them"
        )
    for each in eta.flatten().tolist() if isinstance(eta, Tensor) else listed("eta", eta):
        if each is not None:
            not_negative("eta", each)
    for each in listed("sparsity", sparsity):
        if each is None:
            continue
        number("sparsity", each)
        if not 0 < each <= 1:
            raise ValueError(f"sparsity must be in (0, 1], the share of the map to keep, got {each!r}")


def listed(name: str, given: Any) -> Sequence[Any]:
    """One value as a list of one; a list, which asks for a path of maps, as it is."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [given]
    if not given or None in given:
        raise ValueError(f"{name} must be a number or a list of at least one number, got {given!r}")
    return given


def steps(total: int | None, samples: int) -> int:
    """How many steps a budget pays for; a solver on its own, told nothing, has 800."""
    total = 800 if total is None else total
    at_least("budget", total, 1)
    if total < samples:
        raise ValueError(
            f"budget must be at least samples, got budget={total} and samples={samples}: "
            "one step spends `samples` gradients; raise budget or lower samples"
        )
    return total // samples


def solver(given: object, known: Mapping[str, Any]) -> None:
    if isinstance(given, str):
        one_of("solver", given, known)
    elif given is not None and not hasattr(given, "run"):
        raise TypeError(f"solver must be None, one of {list(known)} or an object with run(), got {given!r}")


def precision(given: object, known: Sequence[str], x: Tensor, single: bool) -> None:
    """A precision that the device of x has."""
    if given not in known:
        raise unknown("precision", given, list(known))
    if given != "float32" and not single:
        raise ValueError(
            f"precision must be left out for inputs that are not float32, got precision={given!r} for {x.dtype}; "
            "such inputs are explained in the precision they have"
        )
    if given == "tf32" and not has_tf32(x):
        raise ValueError(f"precision='tf32' needs an NVIDIA GPU of 2020 or later, got {x.device}; use 'float32'")
    if given == "bfloat16" and x.is_cuda and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError(f"precision='bfloat16' needs an NVIDIA GPU of 2020 or later, got {x.device}; use 'float16'")
    if given == "float16" and not x.is_cuda:
        raise ValueError(f"precision='float16' needs a GPU, got {x.device}; use 'bfloat16' or 'float32'")


def has_tf32(x: Tensor) -> bool:
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= (8, 0)


def flag(name: str, given: object) -> None:
    if given is not None and not isinstance(given, bool):
        raise TypeError(f"{name} must be True, False or None, got {given!r}")


def seed(given: object) -> None:
    if given is None or isinstance(given, torch.Generator):
        return
    at_least("seed", given, 0)


def fixed_eta(solver: str, keep: float | None) -> None:
    if keep is not None:
        raise ValueError(f"{solver} needs a fixed eta, got sparsity={keep}; give eta=, or take solver=None")


def one_of(name: str, value: object, known: Mapping[str, Any]) -> None:
    if value not in known:
        raise unknown(name, value, list(known))


def device(name: str | torch.device) -> torch.device:
    """A device that is there."""
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device must be one that works here, such as 'cpu', got {str(name)!r}: {reason}") from None
    return found


def groups(groups: Any, shape: tuple[int, ...]) -> None:
    """Groups that partition inputs of this shape (batch first)."""
    one = math.prod(shape[1:])
    ways = "a number of cells per side, 'superpixels', 'channels', or an integer label map"
    if isinstance(groups, str):
        if groups not in ("superpixels", "channels"):
            raise ValueError(f"groups must be {ways}, got {groups!r}")
        if groups == "superpixels" and len(shape) != 4:
            raise ValueError(f"groups='superpixels' needs images (N, C, H, W), got inputs of shape {shape}")
        return
    if isinstance(groups, Integral) and not isinstance(groups, bool):
        at_least("groups", groups, 1)
        if len(shape) < 4:
            raise ValueError(
                f"a grid of groups needs images (N, C, H, W), got inputs of shape {shape}; "
                f"pass a label map of shape ({one},) instead"
            )
        return
    label_map(groups, shape, one, ways)


def label_map(groups: Any, shape: tuple[int, ...], one: int, ways: str) -> None:
    try:
        labels = torch.as_tensor(groups)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"groups must be {ways}, got {type(groups).__name__}") from None
    if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
        raise TypeError(f"a label map of groups must hold integers, got {labels.dtype}")
    allowed = [(one,)] + ([tuple(shape[-2:]), (shape[0], *shape[-2:])] if len(shape) >= 4 else [])
    if tuple(labels.shape) not in allowed:
        raise ValueError(
            f"groups must cover the whole input: a label map of shape {' or '.join(map(str, allowed))}, "
            f"got {tuple(labels.shape)} for inputs of shape {shape}"
        )
    if labels.long().min() < 0:
        raise ValueError(
            f"groups must cover the whole input, got {int((labels < 0).sum())} entries with a negative label; "
            "give every entry a group, if need be one of its own"
        )


def can(what: str, asked: bool, able: bool, name: str) -> None:
    """An ability that only some methods have."""
    if asked and not able:
        raise ValueError(f"{what} must be left out: {name} cannot use it; `moreaugrad methods --json` lists who can")


def under_noise(smoothed: bool) -> None:
    if not smoothed:
        raise ValueError("grad_mode='covariance' needs a smoothed score, got smoothing=None; use 'implicit'")
