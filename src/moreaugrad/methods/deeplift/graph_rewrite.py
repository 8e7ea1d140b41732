"""Rewrites a network as the elementary operations that it runs, each nonlinearity a module of its own.

Serves rules that hook activations: none is shared, in place or hidden in a function, however the network is
written. The copy is valid for one shape of input; it shares the weights, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.threads import ALONE

# fmt: off
# one number in, one number out: the activations that Captum knows, and those that are pieces of them
_ELEMENTWISE = frozenset({
    "relu", "hardtanh", "leaky_relu", "elu", "sigmoid", "tanh", "softplus", "threshold", "clamp", "clamp_min",
    "clamp_max",
})
_SUMS = frozenset({"add", "sub", "rsub", "cat", "stack", "neg", "clone", "alias", "lift_fresh_copy", "_to_copy"})
_PRODUCTS = frozenset({"mul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm"})  # linear in one factor
_OF_FIRST = frozenset({  # linear in the first argument, constant in the others
    "convolution", "_convolution", "div", "view", "_unsafe_view", "_reshape_alias", "reshape", "permute", "transpose",
    "t", "expand", "squeeze", "unsqueeze", "slice", "select", "split", "split_with_sizes", "unbind", "mean", "sum",
    "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "roll", "flip", "rot90", "im2col", "col2im", "unfold", "index", "index_select", "gather",
    "repeat", "narrow", "diagonal", "masked_fill", "_native_batch_norm_legit_no_training",
})
_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit"})
_POOLS = frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices"})
# fmt: on


class Elementwise(nn.Module):
    """One activation at one place."""

    def __init__(self, operation: Callable[..., Tensor], *arguments: Any, **named: Any) -> None:
        super().__init__()
        self.operation, self.arguments, self.named = operation, arguments, named

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(x, *self.arguments, **self.named)


class Largest(nn.MaxPool2d):
    """The largest of each row of the last axis."""

    def __init__(self, length: int) -> None:
        super().__init__((1, length))


class Pool(nn.Module):
    """Max-pooling with its windows laid out side by side: where windows overlap, a backward pass through the original
    could not separate what an entry gives to each."""

    def __init__(
        self, shape: Sequence[int], kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)  # of what comes out, without the batch
        axes = len(self.shape) - 1
        self.kernel, self.padding, self.dilation = (_each(given, axes) for given in (kernel, padding, dilation))
        self.stride = _each(stride or kernel, axes)
        self.largest = Largest(math.prod(self.kernel))

    def forward(self, x: Tensor) -> Tensor:
        spans = [step * (size - 1) + 1 for size, step in zip(self.kernel, self.dilation, strict=True)]
        for axis, (out, span) in enumerate(zip(self.shape[1:], spans, strict=True), 2):
            before, stride = self.padding[axis - 2], self.stride[axis - 2]
            after = max(0, (out - 1) * stride + span - x.shape[axis] - before)  # what a rounded-up end lacks
            sides = [0, 0] * (x.ndim - 1 - axis) + [before, after]
            x = F.pad(x, sides, value=torch.finfo(x.dtype).min) if before or after else x
        for axis, (span, step) in enumerate(zip(spans, self.dilation, strict=True), 2):
            x = x.unfold(axis, span, self.stride[axis - 2])[..., ::step]
            x = x.narrow(axis, 0, self.shape[axis - 1])
        windows = x.flatten(-len(spans)).flatten(2, -2)
        found: Tensor = self.largest(windows)
        return found.reshape(len(x), *self.shape)


def trace_operations(
    run: Callable[..., Tensor], rows: Sequence[Tensor], further: Sequence[Tensor]
) -> tuple[nn.Module, list[str]]:
    """`run(*rows, *further)` as a graph, and the operations on the rows that are neither linear nor activations."""
    try:
        with ALONE, torch.no_grad():  # a tracer patches modules for all threads
            # without values, so that a branch taken for some values is not recorded as the only one
            whole = make_fx(functionalize(run), tracing_mode="fake", _allow_non_fake_inputs=True)(*rows, *further)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the model's operations must not depend on its values, so that its activations can be traced, got "
            f"{type(error).__name__}: {reason}; leave branches, .item() and numpy out of its forward"
        ) from error
    whole.graph.eliminate_dead_code()
    unserved = list(_insert_modules(whole, len(rows)))
    for name, weight in list(whole.named_parameters()):
        delattr(whole, name)
        whole.register_buffer(name, weight.detach(), persistent=False)
    whole.recompile()
    return whole, sorted(set(unserved))


def _insert_modules(whole: fx.GraphModule, inputs: int) -> Iterator[str]:
    """Replaces activations by modules, and yields the operations that no rule serves."""
    placeholders = [node for node in whole.graph.nodes if node.op == "placeholder"]
    active = set(placeholders[:inputs])  # what depends on the rows, differentiably
    for node in list(whole.graph.nodes):
        name = _operation_name(node)
        if active.isdisjoint(node.all_input_nodes) or node.op == "output" or _drop(whole, node, name):
            continue
        if not _is_floating(node.meta.get("val")):
            yield name
            continue
        active.add(node)
        if name in ("view", "_unsafe_view"):
            node.target = torch.ops.aten.reshape.default  # for any layout, not only that of the tracing
        module = _module_for(node, name)
        if module is not None:
            active.add(_replace_node(whole, node, module))
        elif not _is_linear(node, name, active):
            yield _describe(node, name, active)
    (output,) = (node for node in whole.graph.nodes if node.op == "output")
    if active.isdisjoint(output.all_input_nodes):
        validate.dependent(None)


def _drop(whole: fx.GraphModule, node: fx.Node, name: str) -> bool:
    """Removes what changes no value: another layout, a detach, a layer in place at the input."""
    source: Any = node.args[0] if node.args else None
    same = name == "detach" or (name == "as_strided_" and node.meta["val"].shape == source.meta["val"].shape)
    written = name == "copy_" and source.op == "placeholder" and not node.users
    if same:
        node.replace_all_uses_with(source)
    if same or written:
        whole.graph.erase_node(node)
    return same or written


def _module_for(node: fx.Node, name: str) -> nn.Module | None:
    """The module that replaces an activation, where its options are plain numbers."""
    if any(isinstance(given, fx.Node) for given in (*node.args[1:], *node.kwargs.values())):
        return None
    target: Any = node.target
    if name in _ELEMENTWISE:
        return Elementwise(target, *node.args[1:], **node.kwargs)
    if name not in _POOLS or any(_operation_name(user) != "getitem" or user.args[1] != 0 for user in node.users):
        return None
    shape = node.meta["val"][0].shape
    return Pool(shape[1:], *node.args[1:5]) if len(shape) == 2 + int(name[len("max_pool")]) else None


def _replace_node(whole: fx.GraphModule, node: fx.Node, module: nn.Module) -> fx.Node:
    """Calls the module instead of the operation; of a pool only the values are used."""
    place = f"at_{node.name}"
    whole.add_submodule(place, module)
    alias = torch.ops.aten.alias.default
    with whole.graph.inserting_before(node):
        # tensors of its own on both sides: a hook at its input would change what other readers of that send back,
        # and one at its output would not see what the next module's hook does there
        given = whole.graph.call_function(alias, (node.args[0],))
        new = whole.graph.call_function(alias, (whole.graph.call_module(place, (given,)),))
    new.meta["val"] = node.meta["val"][0] if isinstance(module, Pool) else node.meta["val"]
    for old in [*node.users, node] if isinstance(module, Pool) else [node]:
        old.replace_all_uses_with(new)
        whole.graph.erase_node(old)
    return new


def _is_linear(node: fx.Node, name: str, active: set[fx.Node]) -> bool:
    moved = [each in active if isinstance(each, fx.Node) else None for each in node.args]
    if name in _SUMS or name == "getitem":
        return True
    if name in _PRODUCTS:
        return sum(map(bool, moved[1:] if name.startswith(("add", "badd")) else moved)) <= 1
    if name == "where":
        return not moved[0]
    if name in _NORMS:
        return not any(moved[1:]) and node.args[5] is False
    rounded = node.kwargs.get("rounding_mode") is not None
    return (name in _OF_FIRST or name.startswith("upsample_")) and not any(moved[1:]) and not rounded


def _describe(node: fx.Node, name: str, active: set[fx.Node]) -> str:
    several = sum(isinstance(each, fx.Node) and each in active for each in node.args) > 1
    return f"{name} of two activations" if several else name


def _operation_name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.rpartition("::")[2] if schema is not None else getattr(node.target, "__name__", str(node.target))


def _is_floating(value: Any) -> bool:
    """Whether a derivative can pass."""
    if isinstance(value, tuple | list):
        return any(_is_floating(each) for each in value)
    return isinstance(value, Tensor) and value.is_floating_point()


def _each(given: Any, axes: int) -> tuple[int, ...]:
    values = tuple(given) if isinstance(given, tuple | list) else (given,)
    return values * axes if len(values) == 1 else values
