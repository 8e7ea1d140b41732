"""Changed copies of a model: smooth activations, none in place, none used twice, batch norm folded.

The caller's model is never touched: every function returns a deep copy.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from moreaugrad import validate

_FUNCTIONAL = re.compile(r"(\b(F|functional|torch|nn\.functional)\.|(?<!\bself)\.)(relu6?|hardtanh|threshold)_?\(")


_LAYERS = frozenset({"torch.Conv1d", "torch.Conv2d", "torch.Conv3d", "torch.Linear", "timm.Conv2dSame"})
_NORMS = frozenset({"torch.BatchNorm1d", "torch.BatchNorm2d", "torch.BatchNorm3d", "timm.BatchNormAct2d"})


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
    """A copy in which every ReLU is softplus_beta (ReLU6 and leaky ReLU their smooth twins), for second derivatives.

    Weights are shared in value only; the larger beta, the nearer the outputs.
    """
    validate.positive("beta", beta)
    refuse_functional(model)
    return _replaced(model, lambda module: _soft(module, beta))


def has_kinks(model: nn.Module) -> bool:
    """Whether the network has activations whose second derivative is zero almost everywhere."""
    kinds = (
        nn.ReLU,
        nn.ReLU6,
        nn.LeakyReLU,
        nn.PReLU,
        nn.RReLU,
        nn.Hardtanh,
        nn.Hardswish,
        nn.Hardsigmoid,
        nn.Threshold,
    )
    if any(isinstance(module, kinds) for module in model.modules()):
        return True
    return _functional(model) is not None


def out_of_place(model: nn.Module) -> nn.Module:
    """A copy whose activations leave their input alone, as hooks need it."""
    changed = copy.deepcopy(model)
    for module in changed.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
    return changed


def unshared(model: nn.Module) -> nn.Module:
    """A copy in which no activation module is called twice: each call has a module of its own."""
    try:
        traced = fx.symbolic_trace(out_of_place(model))
    except Exception as error:  # whatever the model's own code raises under tracing
        raise ValueError(
            f"the model must be traceable by torch.fx for its activations to be told apart, got {error}; "
            "write each activation as a module of its own"
        ) from error
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in traced.graph.nodes:
        if node.op == "call_module" and calls[node.target] > 1:
            module = traced.get_submodule(node.target)
            if not list(module.parameters()):
                calls[node.target] -= 1
                node.target = f"{node.target}_{calls[node.target]}"
                traced.add_submodule(node.target, copy.deepcopy(module))
    traced.recompile()
    return traced.train(model.training)


def frozen(model: nn.Module) -> nn.Module:
    """A copy that asks for no weight gradients and shares the memory of the model's weights."""
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    shared |= {id(buffer): buffer for buffer in model.buffers()}
    return copy.deepcopy(model, shared)


def folded(model: nn.Module, run: Callable[[nn.Module], Any]) -> nn.Module:
    """A frozen copy, fast in reverse, without the batch norms that directly follow a convolution or linear layer.

    `run` calls the copy once, to see which follow which. The caller compares the outputs: a layer whose output
    is read by others too must not be folded, and that shows in nothing else.
    """
    changed = frozen(model)
    for layer, norm in _followed(changed, run):
        joined = fuse_linear_bn_weights if isinstance(layer, nn.Linear) else fuse_conv_bn_weights
        statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        with torch.no_grad():
            layer.weight, layer.bias = joined(layer.weight, layer.bias, *statistics)
        rest = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
        _swap(changed, norm, rest[-1] if len(rest) == 1 else nn.Sequential(*rest).train(norm.training))
    for module in changed.modules():
        # autograd copies what such an activation overwrites; those of the second kind need only their result
        if getattr(module, "inplace", False) and not isinstance(module, nn.ReLU | nn.LeakyReLU | nn.ELU):
            module.inplace = False  # type: ignore[assignment]
    return changed.requires_grad_(False)


def _followed(model: nn.Module, run: Callable[[nn.Module], Any]) -> list[tuple[Any, Any]]:
    """The layers whose output object went straight into a batch norm, each of the two called once."""
    outputs: dict[int, tuple[nn.Module, Any]] = {}  # holds the tensors, so that no number is used again
    calls: Counter[nn.Module] = Counter()
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def seen(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        calls[module] += 1
        if _is(module, _LAYERS):
            outputs[id(output)] = (module, output)
        elif given and id(given[0]) in outputs:
            pairs.append((outputs[id(given[0])][0], module))

    wanted = [module for module in model.modules() if _is(module, _LAYERS) or _is(module, _NORMS)]
    hooks = [module.register_forward_hook(seen) for module in wanted]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return [(layer, norm) for layer, norm in pairs if calls[layer] == calls[norm] == 1]


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
    found = _functional(model)
    if found is not None:
        call, name, module = found
        raise ValueError(
            f"every activation must be a module to be replaced, got {call}...) in the forward of "
            f"{type(module).__name__} {name!r}; use nn.ReLU() there"
        )


def _functional(model: nn.Module) -> tuple[str, str, nn.Module] | None:
    """The first ReLU that is called as a function, with where it is."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.nn.modules"):
            continue
        try:
            source = inspect.getsource(type(module).forward)
        except (OSError, TypeError):
            continue
        found = _FUNCTIONAL.search(source)
        if found:
            return found.group(), name, module
    return None


def _soft(module: nn.Module, beta: float) -> nn.Module | None:
    if isinstance(module, nn.ReLU6):
        return SoftReLU6(beta)
    if isinstance(module, nn.LeakyReLU):
        return SoftLeaky(beta, module.negative_slope)
    return nn.Softplus(beta) if isinstance(module, nn.ReLU) else None


def _replaced(model: nn.Module, change: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
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
