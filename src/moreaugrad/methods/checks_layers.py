"""Checks of layers that a method reads, and of the models and heads that have them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from torch import nn

_WRAPPERS = ("network.", "module.")  # a classifier's own network; a model spread over several GPUs


def module(model: Any, who: str) -> nn.Module:
    """The module whose layers can be read: what was compiled, not its compiled form."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"{who} reads layers of the model, so the model must be a torch.nn.Module, got {type(model).__name__}; "
            "pass the module itself, or take a method that needs no layer, such as `gradient`"
        )
    return model


def layer(model: nn.Module, path: object) -> str:
    """The full name of the module at a path, which may leave out the name under which a wrapper holds its network."""
    if not isinstance(path, str):
        raise TypeError(f"a layer must be the name of a module, such as 'layer4', got {path!r}")
    known = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for full in (path, *(prefix + path for prefix in _WRAPPERS)):
        if full in known:
            return full
    close = get_close_matches(path, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "model.named_modules() lists them"
    raise ValueError(f"layer must be the name of a module of the model, got {path!r}; {hint}")


def layers(model: nn.Module, paths: object) -> tuple[str, ...]:
    """The full names of one or several modules, each once."""
    listed = [paths] if isinstance(paths, str) else paths
    if not isinstance(listed, Sequence) or not listed:
        raise TypeError(f"layers must be the name of a module or a list of such names, got {paths!r}")
    found = tuple(layer(model, path) for path in listed)
    if len(set(found)) < len(found):
        raise ValueError(f"layers must name each module once, got {list(listed)}")
    return found


def pictures(shape: tuple[int, ...], who: str) -> None:
    if len(shape) != 4:
        raise ValueError(
            f"{who} needs one batch of images (N, C, H, W), got inputs of shape {shape}; tuples of inputs and "
            "inputs without pixels are explained by methods that need no layer, such as `gradient`"
        )


def tensor_of(name: str, output: object) -> None:
    raise TypeError(
        f"layer {name!r} must return a tensor, or a tuple that begins with one, got {type(output).__name__}; "
        "name a module inside it"
    )


def called(name: str, seen: bool) -> None:
    if not seen:
        raise ValueError(
            f"layer {name!r} must take part in the model's forward, got no call of it; name a module that is called "
            "(a scripted model calls none)"
        )


def reaches(name: str, seen: bool) -> None:
    if not seen:
        raise ValueError(
            f"the score must depend on the output of layer {name!r}, got no gradient there; "
            "name a layer between the input and the score, with no detach() or no_grad on the way"
        )


def spatial(name: str, shape: tuple[int, ...]) -> None:
    shown = f"(N{''.join(f', {size}' for size in shape[1:])})"
    raise ValueError(
        f"layer {name!r} must have a spatial output of more than one cell: (N, C, h, w), (N, h, w, C) or the tokens of "
        f"a patch grid (N, T, D), got {shown}; name an earlier layer, or take larger images"
    )


def some_layer(name: str | None, what: str) -> str:
    """The layer that was found for a model that was told none."""
    if name is None:
        raise ValueError(
            f"the model must have {what}, got none with more than one cell; name a layer by hand, "
            "take larger images, or a method that needs no layer, such as `gradient`"
        )
    return name


def convolution(name: str, found: object) -> None:
    if not isinstance(found, nn.Conv2d):
        raise TypeError(f"variant='proper' needs a Conv2d, got {type(found).__name__} at {name!r}; name a convolution")


_HEAD = "the model must end in an average over all positions and one linear layer (GAP + linear) for CAM, got "
_INSTEAD = "; take Grad-CAM (`gradcam`), which works for any head"


def head(fits: bool, came: str) -> None:
    """CAM reads its weights off the head, so there is no map for any other head."""
    if not fits:
        raise ValueError(f"{_HEAD}{came}{_INSTEAD}")


def logits_only(score: str) -> None:
    if score != "logit":
        raise ValueError(f"CAM takes logits apart, so score must be 'logit', got {score!r}{_INSTEAD}")


def one_loss(score: str) -> None:
    if score == "prob":
        raise ValueError("loss='ce' is minus the log-probability, got score='prob' with it; leave one of them out")


def yes_or_no(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{name} must be True or False, got {given!r}")
