"""Every check of user input and its wording: what must hold, what came, the way out.

Knows no method and calls no model. Returns nothing, or the value in the form that the caller needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def positive(name: str, value: float) -> None:
    number(name, value)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def not_negative(name: str, value: float) -> None:
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")


def at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
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


def smooth(given: object, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"smoothing must be a Smoothing or None, got {given!r}; write Smoothing(noise_level=0.1)")


def one_each(name: str, value: object, images: int) -> None:
    if isinstance(value, Tensor) and value.numel() not in (1, images):
        raise ValueError(f"{name} must be one number, or one per image, got {value.numel()} for {images} images")


def weights(eta: float | Tensor | None, sparsity: float | None) -> None:
    if eta is not None and sparsity is not None:
        raise ValueError(
            f"eta and sparsity exclude each other, got eta={eta} and sparsity={sparsity}: "
            "sparsity chooses eta for each image, so give one of them"
        )
    for each in eta.flatten().tolist() if isinstance(eta, Tensor) else [eta]:
        if each is not None:
            not_negative("eta", each)
    if sparsity is not None:
        number("sparsity", sparsity)
        if not 0 < sparsity <= 1:
            raise ValueError(f"sparsity must be in (0, 1], the share of the map to keep, got {sparsity!r}")


def steps(total: int, samples: int) -> int:
    """How many steps a budget pays for."""
    at_least("budget", total, 1)
    if total < samples:
        raise ValueError(
            f"budget must be at least samples, got budget={total} and samples={samples}: "
            "one step spends `samples` gradients; raise budget or lower samples"
        )
    return total // samples


def fixed_eta(solver: str, keep: float | None) -> None:
    if keep is not None:
        raise ValueError(f"{solver} needs a fixed eta, got sparsity={keep}; give eta=, or take solver=None")


def one_of(name: str, value: object, known: Mapping[str, Any]) -> None:
    from moreaugrad.tables import unknown

    if value not in known:
        raise unknown(name, value, list(known))


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
    if isinstance(groups, int) and not isinstance(groups, bool):
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
    if labels.min() < 0:
        raise ValueError(
            f"groups must cover the whole input, got {int((labels < 0).sum())} entries with a negative label; "
            "give every entry a group, if need be one of its own"
        )


def inputs(tensors: Any) -> tuple[Tensor, ...]:
    """A tensor or tuple of tensors, batch first, floating point and finite, of one batch size and device."""
    given = tensors if isinstance(tensors, tuple) else (tensors,)
    if not given:
        raise ValueError("inputs must be a tensor or a non-empty tuple of tensors, got an empty tuple")
    for index, tensor in enumerate(given):
        where = f"inputs[{index}]" if len(given) > 1 else "inputs"
        _input(where, tensor)
        if len(tensor) != len(given[0]):
            raise ValueError(f"all inputs must have one batch size, got {[len(t) for t in given]}")
        if tensor.device != given[0].device:
            raise ValueError(f"all inputs must be on one device, got {[str(t.device) for t in given]}")
    return given


def _input(where: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{where} must be a tensor (or a tuple of tensors), got {type(tensor).__name__}; "
            "for files and PIL images use moreaugrad.explain(model, image)"
        )
    if not tensor.is_floating_point():
        raise TypeError(
            f"{where} must be floating point to have a gradient, got {tensor.dtype}; "
            "explain the embeddings instead of token numbers, or call .float()"
        )
    if tensor.ndim < 2:
        raise ValueError(
            f"{where} must have a batch axis and at least one more, got shape {tuple(tensor.shape)}; "
            "add the batch axis with x.unsqueeze(0)"
        )
    if tensor.numel() == 0:
        raise ValueError(f"{where} must hold at least one image, got shape {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        bad = (~torch.isfinite(tensor)).flatten(1).any(1).nonzero().flatten().tolist()
        raise ValueError(f"{where} must be finite, got NaN or infinity in row(s) {bad[:8]}; clean or drop them")


def target(target: Any, images: int) -> Any:
    """A target in one of Captum's forms, of the right length."""
    ways = "an int, a tuple, a tensor or list with one entry per image, or None"
    if isinstance(target, Tensor):
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(f"target must hold class numbers, got a tensor of {target.dtype}")
        if target.ndim > 1 and target.numel() != 1:
            raise ValueError(f"target must be {ways}, got a tensor of shape {tuple(target.shape)}")
        length = None if target.numel() == 1 else len(target)
    elif isinstance(target, list):
        length = len(target)
        kinds = {type(entry) for entry in target}
        if kinds not in ({int}, {tuple}):
            raise TypeError(f"a list of targets must hold ints or tuples, got {sorted(k.__name__ for k in kinds)}")
    elif target is None or (isinstance(target, int | tuple) and not isinstance(target, bool)):
        length = None
    elif hasattr(target, "__index__"):
        return int(target)
    else:
        raise TypeError(f"target must be {ways}, got {type(target).__name__}")
    if length is not None and length != images:
        raise ValueError(f"target must have one entry per image, got {length} targets for {images} images")
    return target


def output(found: Any, rows: int) -> Tensor:
    """The tensor in what a model returned: itself, or its `.logits`."""
    logits = found.get("logits") if isinstance(found, dict) else getattr(found, "logits", found)
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"the model must return a tensor or an object with .logits, got {type(found).__name__}; "
            "wrap it in a function that returns the tensor to explain"
        )
    if logits.ndim == 0 or len(logits) != rows:
        raise ValueError(
            f"the model must return one row per input row, got output of shape {tuple(logits.shape)} for {rows} rows"
        )
    return logits


def target_fits(target: Any, shape: tuple[int, ...], kind: str) -> None:
    """The target picks one number per row out of an output of this shape."""
    if kind != "logit" and len(shape) < 2:
        raise ValueError(f"score={kind!r} needs class scores (N, classes), got output of shape {shape}; use 'logit'")
    if target is None:
        if math.prod(shape[1:]) != 1:
            raise ValueError(
                f"target must be given where the model has several outputs, got None for output of shape {shape}; "
                "pass the class number(s), or use .explain(), which takes the predicted class"
            )
        return
    listed = target.flatten().tolist() if isinstance(target, Tensor) else target
    for entry in [listed] if isinstance(listed, int | tuple) else listed:
        index = entry if isinstance(entry, tuple) else (entry,)
        if len(index) != len(shape) - 1:
            raise ValueError(f"target must have {len(shape) - 1} index(es) for output of shape {shape}, got {entry!r}")
        for position, size in zip(index, shape[1:], strict=True):
            if not -size <= position < size:
                raise ValueError(f"target must be below {size} for output of shape {shape}, got {entry!r}")


def finite_score(value: Tensor) -> None:
    if not bool(torch.isfinite(value).all()):
        bad = (~torch.isfinite(value)).nonzero().flatten().tolist()
        raise ValueError(
            f"the model's score must be finite, got NaN or infinity for image(s) {bad[:8]}; "
            "check the preprocessing, or a half-precision overflow"
        )


def differentiable(score: Tensor) -> None:
    if not score.requires_grad:
        raise ValueError(
            "the model must be differentiable with respect to its input, got an output without gradient; "
            "remove no_grad, detach, argmax or numpy from its forward"
        )


def dependent(grad: Tensor | None) -> None:
    if grad is None:
        raise ValueError(
            "the model's output must depend on its input through differentiable operations, got an output "
            "that has a gradient, but none with respect to the input; look for detach() in its forward"
        )


_RANDOM = ("Drop", "StochasticDepth")


def evaluating(model: Any) -> None:
    """No layer of the model may act as in training: images would mix, and maps would change from call to call."""
    if not isinstance(model, nn.Module):
        return
    for name, module in model.named_modules():
        kind = type(module).__name__
        norms = isinstance(module, nn.modules.batchnorm._BatchNorm)
        chance = getattr(module, "p", getattr(module, "drop_prob", 1.0))
        acts = norms or (any(word in kind for word in _RANDOM) and chance) or isinstance(module, nn.RReLU)
        if module.training and acts:
            raise ValueError(
                f"the model must be in evaluation mode, got {kind} {name!r} in training mode; call model.eval() first"
            )
        if norms and module.running_mean is None:
            raise ValueError(
                f"batch norm must use running statistics, got {kind} {name!r} with track_running_stats=False: "
                "images of a batch would change each other's maps"
            )


def device(name: str | torch.device) -> torch.device:
    """A device that is there."""
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device must be one that works here, such as 'cpu', got {str(name)!r}: {reason}") from None
    return found
