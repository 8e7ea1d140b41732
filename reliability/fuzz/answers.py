"""What must hold for the answers of calls: shapes, dtypes, finite entries, and shares that were asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg


def check_map(x: Any, answer: Any, sparsity: Any = None) -> str | None:
    """What is wrong with the map of a batch, a tuple or a list of them."""
    return next(_map_faults(x, answer, sparsity), None)


def _map_faults(x: Any, answer: Any, sparsity: Any) -> Iterator[str]:
    if isinstance(answer, list):
        for each in answer:
            yield from _map_faults(x, each, None)
    elif isinstance(x, tuple) and isinstance(answer, tuple) and len(x) == len(answer):
        for one, each in zip(x, answer, strict=True):
            yield from _map_faults(one, each, None)
    elif isinstance(x, tuple) or not isinstance(answer, Tensor):
        yield f"one map per input is wanted, got {type(answer).__name__} for {type(x).__name__}"
    else:
        yield from _tensor_faults(x, answer)
        if isinstance(sparsity, float) and (kept := _share_kept(answer)) > sparsity + 1 / answer[0].numel() + 1e-6:
            yield f"the map keeps {kept:.3f} of its entries where sparsity={sparsity} was asked for"


def _tensor_faults(x: Tensor, answer: Tensor) -> Iterator[str]:
    if tuple(answer.shape) not in (tuple(x.shape), (len(x), 1, *x.shape[2:])):
        yield f"a map of shape {tuple(answer.shape)} for inputs of shape {tuple(x.shape)}"
    if answer.dtype != x.dtype:
        yield f"a map of {answer.dtype} for inputs of {x.dtype}"
    if not bool(answer.isfinite().all()):
        yield "the map is not finite"
    if answer.is_inference():
        yield "the map is an inference tensor"


def _share_kept(maps: Tensor) -> float:
    return float((maps != 0).flatten(1).float().mean(1).max())


def check_explanation(x: Any, found: Any, sparsity: Any = None) -> str | None:
    """What is wrong with an Explanation, or with the list of a path."""
    if isinstance(found, list):
        return next((fault for each in found if (fault := check_explanation(x, each))), None)
    if not isinstance(found, mg.Explanation):
        return f"an Explanation is wanted, got {type(found).__name__}"
    maps = found.map
    like = tuple(t.to(m.dtype) for t, m in zip(x, maps, strict=True)) if isinstance(x, tuple) else x.to(maps.dtype)
    fault = check_map(like, maps, sparsity)
    for name in ("score", "eta", "envelope", "gradients"):
        value = getattr(found, name)
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            fault = fault or f"{name} is not finite: {value.tolist()}"
    return fault


def check_attack(attack: Any, x: Tensor, found: Any) -> str | None:
    """What is wrong with the result of an attack."""
    if not isinstance(found, mg.AttackResult):
        return f"an AttackResult is wanted, got {type(found).__name__}"
    return next(_attack_faults(attack, x, found), None)


def _attack_faults(attack: Any, x: Tensor, found: mg.AttackResult) -> Iterator[str]:
    if found.x.shape != x.shape or found.x.dtype != x.dtype:
        yield f"attacked inputs {tuple(found.x.shape)} of {found.x.dtype} for {tuple(x.shape)} of {x.dtype}"
        return
    if not bool(found.x.isfinite().all()):
        yield "the attacked inputs are not finite"
    if found.x.requires_grad or found.x.is_inference():
        yield "the attacked inputs belong to a graph"
    moved = (found.x.double() - x.detach().double()).flatten(1)
    length = moved.norm(dim=1) if attack.norm == "l2" else moved.abs().amax(1)
    slack = 1e-5 * float(attack.epsilon) + 1e-5 * float(x.abs().max())
    if attack.norm != "plain" and bool((length > attack.epsilon + slack).any()):  # plain noise has no ball
        yield f"the attacked inputs leave the ball: {float(length.max())} from the input, epsilon={attack.epsilon}"
    for name in ("success", "kept", "objective", "gradients", "target", "l2", "linf"):
        if len(getattr(found, name)) != len(x):
            yield f"{name} has {len(getattr(found, name))} entries for {len(x)} images"


def check_certificates(x: Tensor, found: Any) -> str | None:
    """What is wrong with the certificates of a batch: one each, and no NaN in a promise."""
    if not isinstance(found, list) or len(found) != len(x) or not all(isinstance(c, mg.Certificate) for c in found):
        return "one Certificate per image is wanted"
    for each in found:
        for part in (each, each.constants, each.accuracy, each.change):
            for name in [one.name for one in fields(part)]:
                value = getattr(part, name)
                if isinstance(value, float) and math.isnan(value):
                    return f"{name} of a certificate is NaN"
        if not bool(each.map.isfinite().all()):
            return "the certified map is not finite"
    return None


def check_figures(name: str, images: int, found: Any) -> str | None:
    """What is wrong with the figures of a metric: one per image, in its range or NaN, which stands for undefined."""
    found = getattr(found, "similarity", found[0] if isinstance(found, tuple) else found)
    if not isinstance(found, Tensor) or len(found) != images:
        return f"{name} must give one figure per image"
    if not found.is_floating_point():
        return f"{name} must give numbers, got {found.dtype}"
    low, high = mg.METRICS[name].range
    defined = found[~found.isnan()]
    if not bool(((defined >= low) & (defined <= high)).all()):
        return f"{name} leaves its range [{low}, {high}]: {found.tolist()}"
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, entry by entry."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.allclose(one.detach(), other.detach(), rtol=0, atol=0, equal_nan=True)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
