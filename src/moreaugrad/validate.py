"""The general checks of what users give, and their wording; a check with one caller stands where it is called."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from moreaugrad import limits
from moreaugrad.registry import unknown

# the checks of plain values belong here too, but stand where no torch is imported
number, positive, not_negative, at_least = limits.number, limits.positive, limits.not_negative, limits.at_least
share, voters, listed, one_of, steps = limits.share, limits.voters, limits.listed, limits.one_of, limits.steps


class CheckedOptions(type):
    """A metaclass whose constructors answer an unknown option with the nearest one, and a renamed one with its name.

    Where the class has presets, `preset=` stands for the options of one; options that are given win over it.
    """

    renamed_options: Mapping[str, str]
    presets: Mapping[str, Mapping[str, Any]]  # options that one word stands for

    if not TYPE_CHECKING:  # else the signature of the class would be lost

        def __call__(cls, *args, **options):
            parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
            if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
                return super().__call__(*args, **options)
            known = [each.name for each in parameters]
            for old, new in getattr(cls, "renamed_options", {}).items():
                if old in options and old not in known and new in known:
                    if new in options:
                        raise TypeError(f"{old}= is now {new}=, got both; give {new} alone")
                    warnings.warn(f"{old}= is now {new}=; the old name goes in 0.3", DeprecationWarning, stacklevel=2)
                    options[new] = options.pop(old)
            for name in options:
                if name not in known:
                    raise unknown_option(cls.__name__, name, known)
            added = expand_preset(cls, dict(zip(known, args)) | options)  # noqa: B905 - fewer are given
            args = tuple(map(limits.plain_number, args))
            options = {name: limits.plain_number(value) for name, value in options.items()}
            try:
                return super().__call__(*args, **{**options, **added})  # None may be there for what is added
            except (TypeError, ValueError) as error:
                _name_preset(error, options.get("preset"), added)
                raise

        @property
        def __signature__(cls):
            found = inspect.signature(cls.__init__)
            return found.replace(parameters=list(found.parameters.values())[1:])


def expand_preset(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset adds to the options that are given, by which it was expanded.

    A copy by `dataclasses.replace` has all options of the original, and nothing is added to them.
    """
    name = given.get("preset")
    if not hasattr(kind, "presets"):  # a class with an option of its own by this name
        return {}
    if "expanded" in given:
        if name != given["expanded"]:
            raise ValueError(
                f"preset must be given to a new method, got preset={name!r} for a copy, which has its options already; "
                f"write {kind.__name__}(method.forward_func, preset={name!r}), or replace options one by one"
            )
        return {}
    if name is None:
        return {}
    if not isinstance(name, str) or name not in kind.presets:
        raise unknown("preset", name, list(kind.presets))
    noise = "smoothing" in given or any(given.get(each) is not None for each in ("noise_level", "sigma"))
    taken = {*given, "noise_level"} if noise else {*given} - {"noise_level"}
    return {"expanded": name} | {key: value for key, value in kind.presets[name].items() if key not in taken}


def _name_preset(error: Exception, name: object, added: Mapping[str, Any]) -> None:
    """Says of the options in an error which of them a preset has set: nobody has typed those."""
    text = error.args[0] if error.args else None
    found = [f"{key}={value!r}" for key, value in added.items() if isinstance(text, str) and f"{key}=" in text]
    if found:
        error.args = (f"{text}; {' and '.join(found)} came from preset={name!r}", *error.args[1:])


def unknown_option(owner: str, name: str, known: Sequence[str]) -> TypeError:
    """The error for an option that is not there."""
    if name == "preset":
        return TypeError(f"{owner} has no presets; leave preset out, and give the options themselves")
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}"
    return TypeError(f"{owner} has no option {name!r}; {hint}")


def prior(given: object) -> None:
    """A prior has its three methods."""
    lacking = [name for name in ("value", "prox", "units") if not callable(getattr(given, name, None))]
    if lacking or isinstance(given, type):
        what = f"the class {given.__name__}; write {given.__name__}()" if isinstance(given, type) else repr(given)
        lack = f" without {', '.join(lacking)}" if lacking else ""
        raise TypeError(f"prior must be an object with value, prox and units, or a name in PRIORS, got {what}{lack}")


def flag(name: str, given: object) -> None:
    if given is not None and not isinstance(given, bool):
        raise TypeError(f"{name} must be True, False or None, got {given!r}")


def seed(given: object) -> None:
    if given is None or isinstance(given, torch.Generator):
        return
    at_least("seed", given, 0)


def device(name: str | torch.device) -> torch.device:
    """A device that is there."""
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device must be one that works here, such as 'cpu', got {str(name)!r}: {reason}") from None
    return found


def can(what: str, asked: bool, able: bool, name: str) -> None:
    """An ability that only some methods have."""
    if asked and not able:
        raise ValueError(f"{what} must be left out: {name} cannot use it; `moreaugrad methods --json` lists who can")


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


def one_input(given: Any) -> Tensor:
    """One tensor, where a tuple of inputs cannot be taken."""
    if isinstance(given, tuple):
        raise TypeError(f"inputs must be one tensor (N, ...), got a tuple of {len(given)}; make one of them")
    return inputs(given)[0]


def _input(where: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{where} must be a tensor (or a tuple of tensors), got {type(tensor).__name__}; "
            "for files and PIL images use moreaugrad.explain(model, image)"
        )
    dense(where, tensor)
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


def dense(name: str, tensor: Tensor) -> None:
    """A tensor whose entries all lie in memory, one beside the other."""
    kinds = {
        "a meta tensor, which has no values; move what it stands for to a device": tensor.is_meta,
        "a nested tensor; pad it, or pass its rows one by one": tensor.is_nested,
        "a quantized tensor; call .dequantize()": tensor.is_quantized,
        "a sparse tensor; call .to_dense()": tensor.layout != torch.strided,
    }
    for kind, found in kinds.items():
        if found:
            raise TypeError(f"{name} must be a dense tensor with values, got {kind}")


def same_dtype(error: RuntimeError, model: Any, rows: Sequence[Tensor]) -> None:
    """Says so where a network failed because its weights have another dtype than its inputs."""
    words = ("same dtype", "scalar type", "should be the same")  # torch's own, of layers of all kinds
    weights = {p.dtype for p in model.parameters() if p.is_floating_point()} if isinstance(model, nn.Module) else set()
    if weights and rows[0].dtype not in weights and any(each in str(error) for each in words):
        kinds = " or ".join(sorted(map(str, weights)))
        raise ValueError(
            f"inputs must have the dtype of the model's weights, {kinds}, got {rows[0].dtype}; convert them by "
            f"x.to({kinds.split(' or ')[0]}), or the model by model.to({rows[0].dtype})"
        ) from error


_TARGETS = "an int, a tuple, a tensor or list with one entry per image, or None"


def target(target: Any, images: int) -> Any:
    """A target in one of Captum's forms, of the right length, with plain ints in it."""
    if isinstance(target, Tensor) or hasattr(target, "__array__"):
        target = _target_tensor(target)
        length = None if target.numel() == 1 else len(target)
    elif isinstance(target, list):
        length = len(target)
        target = [_indices(entry) if isinstance(entry, tuple) else _class_number(entry) for entry in target]
        kinds = sorted({type(entry).__name__ for entry in target})
        if len(kinds) != 1:
            raise TypeError(f"a list of targets must hold ints or tuples, got {kinds or 'nothing'}")
    else:
        length = None
        if target is not None:
            target = _indices(target) if isinstance(target, tuple) else _class_number(target)
    if length is not None and length != images:
        raise ValueError(f"target must have one entry per image, got {length} targets for {images} images")
    return target


def _target_tensor(given: Any) -> Tensor:
    """Class numbers in a tensor or array, one or one per image."""
    try:
        found = given if isinstance(given, Tensor) else read_array(given)
    except (TypeError, ValueError):
        raise TypeError(f"target must hold class numbers, got an array of {np.asarray(given).dtype}") from None
    dense("target", found)
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(f"target must hold class numbers, got a tensor of {found.dtype}")
    if found.ndim > 1 and found.numel() != 1:
        raise ValueError(f"target must be {_TARGETS}, got a tensor of shape {tuple(found.shape)}")
    numbers = found.long()
    if found.dtype == torch.uint64 and bool((numbers < 0).any()):
        raise ValueError("target must hold class numbers, got numbers of 2**63 and above")
    return numbers


def read_array(given: Any) -> Tensor:
    """An array of numbers in whatever byte order."""
    array = np.asarray(given)
    return torch.as_tensor(array.astype(array.dtype.newbyteorder("="), copy=False))


def _indices(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(map(_class_number, given))


def _class_number(given: Any) -> int:
    """One number out of a target, as an int."""
    whole = not isinstance(given, bool | np.bool_) and hasattr(given, "__index__")
    if isinstance(given, Tensor):
        dense("target", given)
        whole = given.numel() == 1 and not (
            given.is_floating_point() or given.is_complex() or given.dtype == torch.bool
        )
    if not whole or (isinstance(given, np.ndarray) and given.ndim):
        raise TypeError(f"target must be {_TARGETS}, got {type(given).__name__} {given!r} for a class number")
    number = int(given)
    if abs(number) >= 2**63:
        raise ValueError(f"target must be a class of the model, got {number}")
    return number


def output(found: Any, rows: int) -> Tensor:
    """The tensor in what a model returned: itself, or its `.logits`."""
    logits = find_logits(found)
    if logits is None:
        raise TypeError(
            f"the model must return a tensor or an object with .logits, got {type(found).__name__}; pick the tensor to "
            "explain by output= of the method (a name, a position or a function), or wrap the model in a function that "
            "returns it"
        )
    dense("what the model returns", logits)
    if logits.is_complex():
        raise TypeError(f"the model must return real numbers, got {logits.dtype}; return its .abs() or .real")
    if logits.ndim == 0 or len(logits) != rows:
        raise ValueError(
            f"the model must return one row per input row, got output of shape {tuple(logits.shape)} for {rows} rows"
        )
    return logits


def find_logits(found: Any) -> Tensor | None:
    """What a model returned, where it is a tensor; else its `.logits`; None where there is neither."""
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", found)
    return logits if isinstance(logits, Tensor) else None


def target_fits(target: Any, shape: tuple[int, ...], kind: Any) -> None:
    """The target picks one number per row out of an output of this shape."""
    shown = f"(N{''.join(f', {size}' for size in shape[1:])})"
    if kind in ("prob", "logprob") and (len(shape) != 2 or shape[1] < 2):
        raise ValueError(
            f"score={kind!r} needs several class scores (N, classes), got output of shape {shown}; use 'logit'"
        )
    if target is None:
        if math.prod(shape[1:]) != 1:
            raise ValueError(
                f"target must be given where the model has several outputs, got None for output of shape {shown}; "
                f"{_way_to_target(len(shape) - 1)}"
            )
        return
    if len(shape) == 1:
        raise ValueError(
            f"target must be left out where there is one score per row, got {target!r} for scores of shape (N,)"
        )
    listed = target.flatten().tolist() if isinstance(target, Tensor) else target
    for entry in [listed] if isinstance(listed, int | tuple) else listed:
        index = entry if isinstance(entry, tuple) else (entry,)
        if len(index) != len(shape) - 1:
            raise ValueError(f"target must have {len(shape) - 1} index(es) for output of shape {shown}, got {entry!r}")
        for position, size in zip(index, shape[1:], strict=True):
            if not -size <= position < size:
                raise ValueError(f"target must be below {size} for output of shape {shown}, got {entry!r}")


def _way_to_target(axes: int) -> str:
    """How to say what is explained in an output with so many axes beside the rows."""
    if axes == 1:
        return "pass the class number(s), or use .explain(), which takes the predicted class"
    entry = "(class, row, column)" if axes == 3 else f"a tuple of {axes} indices"
    return (
        f"pass target={entry} for one entry, or score=, a function from the output to one number per row, such as "
        f"score=lambda out: out[:, 1].flatten(1).sum(1)"
    )


def finite_score(value: Tensor) -> None:
    if not bool(torch.isfinite(value).all()):
        bad = (~torch.isfinite(value)).nonzero().flatten().tolist()
        raise ValueError(
            f"the model's score must be finite, got NaN or infinity for image(s) {bad[:8]}; "
            "check the preprocessing, or a half-precision overflow"
        )


def finite_map(parts: Tensor) -> None:
    """The entries of each image's map are numbers."""
    good = parts.detach().isfinite().flatten(1).all(1)
    if not bool(good.all()):
        bad = (~good).nonzero().flatten().tolist()
        raise ValueError(
            f"the map must be finite, got NaN or infinity for image(s) {bad[:8]}; look for a square root or logarithm "
            "of zero in the model's forward, for options or inputs that are too large, or take float64"
        )


def some_gradient(found: Tensor) -> None:
    """Each image had a finite gradient at least once."""
    if not bool(found.all()):
        bad = (~found).nonzero().flatten().tolist()
        raise ValueError(
            f"the model's gradient must be finite, got NaN or infinity alone for image(s) {bad[:8]}; "
            "look for a square root or logarithm of zero in its forward"
        )


def plain_score(method: Any, who: str) -> None:
    """A method that explains class scores as its network returns them, for those who ask the network itself."""
    score, output = getattr(method, "score", "logit"), getattr(method, "output", None)
    if not isinstance(score, str) or output is not None:
        given = f"output={output!r}" if isinstance(score, str) else f"the function score={score!r}"
        raise ValueError(
            f"{who} asks the network itself for class scores (N, classes), got a method with {given}; leave it out and "
            "give the method a network that returns these scores, such as lambda x: net(x)['out']"
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


def runnable(model: Any) -> None:
    if not callable(model) or isinstance(model, type):
        what = f"the class {model.__name__}, of which no network is made" if isinstance(model, type) else repr(model)
        raise TypeError(f"the model must be a module, or a function that returns scores (N, classes), got {what}")


def evaluating(model: Any) -> None:
    """No layer of the model may act as in training: images would mix, and maps would change from call to call."""
    runnable(model)
    for name, module in _modules(model, depth=3):
        # plain look-ups: a missing attribute of a module takes longer than all the rest, and every call comes by here
        kind = module.original_name if isinstance(module, torch.jit.ScriptModule) else type(module).__name__
        if module.training and _acts_in_training(module, kind):
            raise ValueError(
                f"the model must be in evaluation mode, got {kind} {name!r} in training mode; call model.eval() first"
            )
        if "BatchNorm" in kind and getattr(module, "running_mean", 0) is None:
            raise ValueError(
                f"batch norm must use running statistics, got {kind} {name!r} with track_running_stats=False: "
                "images of a batch would change each other's maps"
            )


def _acts_in_training(module: nn.Module, kind: str) -> bool:
    """Whether a layer in training mode mixes images or draws random numbers."""
    tracks = "InstanceNorm" in kind and getattr(module, "running_mean", None) is not None
    chance = getattr(module, "p", getattr(module, "drop_prob", 1.0))
    random = any(word in kind for word in _RANDOM) and chance
    return "BatchNorm" in kind or tracks or bool(random) or isinstance(module, nn.RReLU)


def _modules(model: Any, depth: int) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a callable: its own, or those that a method, partial, closure or object holds."""
    if isinstance(model, nn.Module):
        yield from model.named_modules()
    elif depth > 0 and callable(model) and not isinstance(model, type):
        held = [cell.cell_contents for cell in getattr(model, "__closure__", None) or () if _filled(cell)]
        held += [getattr(model, "__self__", None), *getattr(model, "__dict__", {}).values()]
        if isinstance(model, functools.partial):
            held += [model.func, *model.args, *model.keywords.values()]
        for each in held:
            yield from _modules(each, depth - 1)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def baselines(given: object, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Captum's forms, one tensor per input: numbers, tensors of one row or of all, or a tuple of them."""
    given = tuple(map(limits.plain_number, given)) if isinstance(given, tuple) else limits.plain_number(given)
    parts = given if isinstance(given, tuple) else (given,) * (len(inputs) if isinstance(given, int | float) else 1)
    if len(parts) != len(inputs):
        raise ValueError(f"baselines must be one per input, got {len(parts)} for {len(inputs)} inputs")
    return tuple(_baseline(part, x) for part, x in zip(parts, inputs, strict=True))


def _baseline(given: object, x: Tensor) -> Tensor:
    if isinstance(given, int | float) and not isinstance(given, bool):
        if not abs(given) <= torch.finfo(x.dtype).max:
            raise ValueError(f"baselines must be finite numbers of {x.dtype}, got {given!r}")
        return torch.full_like(x, float(given), requires_grad=False)
    if not isinstance(given, Tensor):
        raise TypeError(f"baselines must be tensors or numbers, got {type(given).__name__}")
    dense("baselines", given)
    if given.shape not in {x.shape, (1, *x.shape[1:]), x.shape[1:]}:
        raise ValueError(
            f"baselines must have the shape of the inputs, {tuple(x.shape)}, or of one of them, "
            f"got {tuple(given.shape)}"
        )
    if not bool(given.isfinite().all()):
        raise ValueError("baselines must be finite, got NaN or infinity")
    return given.detach().to(x.device, x.dtype).expand(x.shape)
