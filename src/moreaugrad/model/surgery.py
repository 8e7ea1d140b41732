"""Changed copies of a model: smooth activations, frozen weights, batch norm folded.

The caller's model is never touched: every function returns a deep copy.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from moreaugrad import validate

Outputs = TypeVar("Outputs")

_FUNCTIONS = frozenset({"relu", "relu_", "relu6", "hardtanh", "hardtanh_", "threshold", "threshold_"})
_LAYERS = frozenset({"torch.Conv1d", "torch.Conv2d", "torch.Conv3d", "torch.Linear", "timm.Conv2dSame"})
_NORMS = frozenset({"torch.BatchNorm1d", "torch.BatchNorm2d", "torch.BatchNorm3d", "timm.BatchNormAct2d"})


_KINKED = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU),
    *(nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Threshold),
)


class SoftReLU6(nn.Module):
    """softplus(x) - softplus(x - 6): smooth, and ReLU6 as beta grows."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta) - F.softplus(x - 6, self.beta)


class SoftLeaky(nn.Module):
    """slope x + (1 - slope) softplus(x): smooth, and leaky ReLU as beta grows."""

    def __init__(self, beta: float, slope: float) -> None:
        super().__init__()
        self.beta, self.slope = beta, slope

    def forward(self, x: Tensor) -> Tensor:
        return self.slope * x + (1 - self.slope) * F.softplus(x, self.beta)


def with_softplus(model: nn.Module, beta: float = 30.0) -> nn.Module:
    """Copies a network with every ReLU replaced by softplus, so that it has second derivatives.

    softplus_beta(x) = log(1 + exp(beta x)) / beta; ReLU6 and leaky ReLU get their smooth counterparts. The larger
    beta, the nearer the outputs to those of the model. The weights are copied, not shared.

    Args:
        model: a network whose activations are modules.
        beta: sharpness of the softplus.

    Returns:
        The smooth copy; the model itself is not changed.

    Example:
        >>> smooth = mg.with_softplus(net, beta=30)
        >>> smooth[1]
        Softplus(beta=30, threshold=20.0)
    """
    validate.positive("beta", beta)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, whose layers can be replaced, got {model!r}")
    refuse_functional(model)
    return _replace(model, lambda module: _soft(module, beta))


def has_kinks(model: nn.Module) -> bool:
    """Whether the network has activations whose second derivative is zero almost everywhere."""
    return any(isinstance(module, _KINKED) for module in model.modules()) or _find_functional(model) is not None


def freeze(model: nn.Module) -> nn.Module:
    """A copy that asks for no weight gradients and shares the memory of the model's weights."""
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    shared |= {id(buffer): buffer for buffer in model.buffers()}
    return copy.deepcopy(model, shared)


def has_batch_norm(model: nn.Module) -> bool:
    """Whether there is a batch norm that `fold_batch_norms` knows."""
    return any(_is(module, _NORMS) for module in model.modules())


def fold_batch_norms(model: nn.Module, run: Callable[[nn.Module], Outputs]) -> tuple[nn.Module, Outputs]:
    """A frozen copy without the batch norms that directly follow a convolution or linear layer, and the outputs before.

    `run` calls the copy once, to learn which follow which. The caller compares the outputs: a layer whose output
    is read by others too must not be folded, and that shows in nothing else.
    """
    changed = freeze(model)
    pairs, before = _find_followers(changed, run)
    for layer, norm in pairs:
        joined = fuse_linear_bn_weights if isinstance(layer, nn.Linear) else fuse_conv_bn_weights
        statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        with torch.no_grad():
            layer.weight, layer.bias = joined(layer.weight, layer.bias, *statistics)
        rest = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
        _swap(changed, norm, rest[-1] if len(rest) == 1 else nn.Sequential(*rest).train(norm.training))
    return changed, before


def make_fast_in_reverse(model: nn.Module) -> nn.Module:
    """The same module, with the in-place activations whose input autograd would have to copy made out of place."""
    for module in model.modules():
        # those of the second kind need only their result
        if getattr(module, "inplace", False) and not isinstance(module, nn.ReLU | nn.LeakyReLU | nn.ELU):
            module.inplace = False  # type: ignore[assignment]
    return model.requires_grad_(False)


def make_channels_last(model: nn.Module) -> None:
    """Lays out the weights of a copy as 2-D convolutions like it; those of 1-D and 3-D have no such layout."""
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def _find_followers(model: nn.Module, run: Callable[[nn.Module], Outputs]) -> tuple[list[tuple[Any, Any]], Outputs]:
    """The layers whose output object went straight into a batch norm, each of the two called once; and the outputs."""
    outputs: dict[int, tuple[nn.Module, Any]] = {}  # holds the tensors, so that no number is used again
    calls: Counter[nn.Module] = Counter()
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def note(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        calls[module] += 1
        if _is(module, _LAYERS):
            outputs[id(output)] = (module, output)
        elif given and id(given[0]) in outputs:
            pairs.append((outputs[id(given[0])][0], module))

    wanted = [module for module in model.modules() if _is(module, _LAYERS) or _is(module, _NORMS)]
    hooks = [module.register_forward_hook(note) for module in wanted]
    try:
        output = run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return [(layer, norm) for layer, norm in pairs if calls[layer] == calls[norm] == 1], output


def _is(module: nn.Module, names: frozenset[str]) -> bool:
    """By exact type: a subclass may compute something else."""
    return f"{type(module).__module__.partition('.')[0]}.{type(module).__name__}" in names


def _swap(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)


def refuse_functional(model: nn.Module) -> None:
    """A ReLU called as a function cannot be replaced, so a copy would be smooth only in part."""
    found = _find_functional(model)
    if found is not None:
        call, name, module = found
        raise ValueError(
            f"every activation must be a module to be replaced, got {call}(...) in the forward of "
            f"{type(module).__name__} {name!r}; use nn.ReLU() there"
        )


def _find_functional(model: nn.Module) -> tuple[str, str, nn.Module] | None:
    """The first ReLU that is called as a function, with where it is: by the names that a forward uses."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.nn.modules"):
            continue
        code = getattr(type(module).forward, "__code__", None)
        for call in sorted(_FUNCTIONS.intersection(code.co_names if code else ())):
            if not isinstance(getattr(module, call, None), nn.Module):  # self.relu is a module
                return call, name, module
    return None


def _soft(module: nn.Module, beta: float) -> nn.Module | None:
    if isinstance(module, nn.ReLU6):
        return SoftReLU6(beta)
    if isinstance(module, nn.LeakyReLU):
        return SoftLeaky(beta, module.negative_slope)
    return nn.Softplus(beta) if isinstance(module, nn.ReLU) else None


def _replace(model: nn.Module, change: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    changed = copy.deepcopy(model)
    whole = change(changed)
    if whole is not None:
        return whole.train(model.training)
    for parent in list(changed.modules()):
        for name, child in list(parent._modules.items()):  # named_children would leave out a module used twice
            new = None if child is None else change(child)
            if child is not None and new is not None:
                setattr(parent, name, new.train(child.training))
    return changed
