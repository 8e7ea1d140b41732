"""Changed copies of a model: smooth activations, none in place, none used twice.

The caller's model is never touched: every function returns a deep copy.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable

from torch import Tensor, fx, nn
from torch.nn import functional as F

from moreaugrad import checks

_FUNCTIONAL = re.compile(r"(\b(F|functional|torch|nn\.functional)\.|\.)(relu6?|hardtanh|threshold)_?\(")


class SoftReLU6(nn.Module):
    """softplus(x) - softplus(x - 6): smooth, and ReLU6 as beta grows."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta) - F.softplus(x - 6, self.beta)


def with_softplus(model: nn.Module, beta: float = 30.0) -> nn.Module:
    """A copy in which every ReLU is softplus_beta (every ReLU6 its smooth twin), for second derivatives.

    Weights are shared in value only; the larger beta, the nearer the outputs.
    """
    checks.positive("beta", beta)
    refuse_functional(model)
    return _replaced(model, lambda module: _soft(module, beta))


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


def refuse_functional(model: nn.Module) -> None:
    """A ReLU called as a function cannot be replaced, so a copy would be smooth only in part."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.nn.modules"):
            continue
        try:
            source = inspect.getsource(type(module).forward)
        except (OSError, TypeError):
            continue
        found = _FUNCTIONAL.search(source)
        if found:
            raise ValueError(
                f"every activation must be a module to be replaced, got {found.group()}...) in the forward of "
                f"{type(module).__name__} {name!r}; use nn.ReLU() there"
            )


def _soft(module: nn.Module, beta: float) -> nn.Module | None:
    if isinstance(module, nn.ReLU6):
        return SoftReLU6(beta)
    return nn.Softplus(beta) if isinstance(module, nn.ReLU) else None


def _replaced(model: nn.Module, change: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    changed = copy.deepcopy(model)
    whole = change(changed)
    if whole is not None:
        return whole.train(model.training)
    for parent in list(changed.modules()):
        for name, child in parent.named_children():
            new = change(child)
            if new is not None:
                setattr(parent, name, new.train(child.training))
    return changed
