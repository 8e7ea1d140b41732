"""Copies of a model in which no masked input can excite a unit beyond what the clean input does.

Clean and masked rows run together, so that nothing is stored between calls. The caller's model stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from moreaugrad.model import surgery
from moreaugrad.model.inputs import read_output
from moreaugrad.types import Output

_FUNCTIONS = {
    "relu", "relu6", "leaky_relu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "glu", "softplus",
    "softsign", "tanh", "sigmoid", "logsigmoid", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink",
    "tanhshrink", "threshold",
}  # fmt: skip


class Guard(nn.Module):
    """An activation h that holds masked rows to the bounds of the clean: min(0, h(x)) <= h(e) <= max(0, h(x)).

    Outside of them no gradient passes; with `clip` the value is moved to the nearest bound as well.
    """

    def __init__(self, activation: nn.Module, clip: bool) -> None:
        super().__init__()
        self.activation, self.clip = activation, clip

    def forward(self, *given: Any) -> Tensor:
        clean, masked = self.activation(*given).chunk(2)
        clean, value = clean.detach(), masked.detach()
        low, high = clean.clamp(max=0), clean.clamp(min=0)
        # the same input may differ in its last digits in another row
        slack = max(1e-6, 8 * torch.finfo(clean.dtype).eps) * (1 + clean.abs())
        inside = (value >= low - slack) & (value <= high + slack)
        if not self.clip:
            return torch.cat([clean, torch.where(inside, masked, value)])
        held = torch.minimum(torch.maximum(value, low), high)
        return torch.cat([clean, torch.where(inside, held + (masked - value), held)])


class GuardedModel(nn.Module):
    """A copy of a model whose activations are guarded: forward(e, x, ...) is the model's output for e.

    The output itself has no bounds. Weights share the memory of the model's.
    """

    def __init__(
        self, model: nn.Module, inputs: int, follow: Sequence[bool], clip: bool, output: Output = None
    ) -> None:
        super().__init__()
        self.output = output  # the part of what the model returns that is explained
        self.inputs = inputs  # tensors that the model takes as its input
        self.follow = list(follow)  # which further arguments have a row for each row of the input
        body = surgery.freeze(model)
        for module in body.modules():
            if getattr(module, "inplace", False):
                module.inplace = False  # type: ignore[assignment]
        self.body = body
        _exchange(self, {module: Guard(module, clip) for module in body.modules() if _activates(module)})
        self.train(model.training)

    def forward(self, *given: Any) -> Tensor:
        masked, clean, more = given[: self.inputs], given[self.inputs : 2 * self.inputs], given[2 * self.inputs :]
        both = [torch.cat([x.to(e.dtype), e]) for x, e in zip(clean, masked, strict=True)]
        twice = [torch.cat([a, a]) if own else a for a, own in zip(more, self.follow, strict=True)]
        rows = len(masked[0])
        return read_output(self.body(*both, *twice), 2 * rows, self.output)[rows:]

    def probe(self, one: Sequence[Tensor], arguments: Sequence[Any]) -> None:
        """Runs one image: refuses activations called as functions, and removes the guard that makes the output."""
        probe = _Probe(self.output)
        with ExitStack() as hooks:
            for guard in self.modules():
                if isinstance(guard, Guard):
                    hooks.callback(guard.register_forward_pre_hook(probe.enter).remove)
                    hooks.callback(guard.register_forward_hook(probe.leave).remove)
            hooks.callback(self.body.register_forward_hook(probe.end).remove)
            with torch.enable_grad(), probe:  # without a gradient some layers take another path
                self(*[part.detach().clone().requires_grad_() for part in one], *one, *arguments)
        if probe.found:
            raise ValueError(
                "every activation must be a module to be defended, got "
                f"{', '.join(f'{name}()' for name in sorted(probe.found))} called in a forward; write it as a module "
                "(nn.ReLU, nn.SiLU, ...), or give defence=None for a plain mask"
            )
        _exchange(self, {guard: guard.activation for guard in probe.last})


class _Probe(TorchFunctionMode):
    """Notes activations that are called as functions, outside of every guard, and guards that make the output."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output
        self.depth, self.found = 0, set[str]()
        self.made: list[tuple[Guard, Tensor]] = []
        self.last: list[Guard] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").rstrip("_")
        if name in _FUNCTIONS and not self.depth:
            self.found.add(name)
        return func(*args, **(kwargs or {}))

    def enter(self, guard: nn.Module, given: Any) -> None:
        self.depth += 1

    def leave(self, guard: Guard, given: Any, output: Tensor) -> None:
        self.depth -= 1
        self.made.append((guard, output))

    def end(self, body: nn.Module, given: Any, output: Any) -> None:
        final = read_output(output, len(self.made[0][1]), self.output) if self.made else None
        self.last = [guard for guard, made in self.made if made is final]


def _activates(module: nn.Module) -> bool:
    """Decided by its module: torch, timm and transformers each keep their activations in one place."""
    kind = type(module)
    known = "activation" in kind.__module__ or isinstance(module, surgery.SoftReLU6)
    return known and not list(module.children()) and not kind.__name__.startswith(("Softm", "LogSoftm"))


def _exchange(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Exchanges modules of the model, wherever they are used."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in new:
                setattr(parent, name, new[child])
