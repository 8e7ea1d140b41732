"""Second derivatives of a network that keep nothing of what it computed: it is run once more for them.

So the memory of a map with a graph does not grow with its rows. Hessian products go forward over reverse, which a
convolution in groups does in one call; where an operation has no forward rule, reverse over reverse; or, where that is
asked for, by differences of gradients. Knows no score.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from moreaugrad.batch import norm, spread
from moreaugrad.model.prepared import Engine
from moreaugrad.threads import ALONE, ignore_warnings
from moreaugrad.types import ForwardFunc, Images, PerImage

log = logging.getLogger("moreaugrad")

Run = Callable[[Images, bool], tuple[PerImage, Images]]  # rows, whether to keep a graph -> value and gradient


def weights(forward: ForwardFunc) -> list[Tensor] | None:
    """What a map depends on beside its rows: None for a function, which may hold anything."""
    return [p for p in forward.parameters() if p.requires_grad] if isinstance(forward, nn.Module) else None


def value_and_grad(engine: Engine, run: Run, rows: Images, beside: list[Tensor]) -> tuple[PerImage, Images]:
    """Value and gradient of each row; a derivative by the rows, or by the weights `beside`, runs the rows again."""
    value, grad = Again.apply(engine, run, rows, *beside)
    return value, grad


def product(engine: Engine, run: Run, rows: Images, along: Images) -> tuple[PerImage, Images, Images]:
    """Value, gradient, and the Hessian times `along`, of each row."""
    if engine.hessian_step is not None:
        return _difference(engine.hessian_step, run, rows, along)
    if engine.tangents:
        try:
            return _forward_over_reverse(run, rows, along)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if _has_forward_rules(run, rows, along):  # then it was the model itself that failed
                raise
            log.debug("an operation of the network has no forward rule: %s", error)
            engine.learn(tangents=False)
    with torch.enable_grad():
        leaf = rows.detach().clone().requires_grad_()
        value, grad = run(leaf, True)
        found = None
        if grad.requires_grad:
            (found,) = torch.autograd.grad(grad, leaf, along, allow_unused=True)
    return value.detach(), grad.detach(), torch.zeros_like(rows) if found is None else found


def _forward_over_reverse(run: Run, rows: Images, along: Images) -> tuple[PerImage, Images, Images]:
    load_forward_rules()
    with ALONE, torch.enable_grad(), forward_ad.dual_level():  # torch has one level of dual numbers for all threads
        leaf = forward_ad.make_dual(rows.detach().clone().requires_grad_(), along.detach())
        value, grad = run(leaf, False)
        bare, tangent = forward_ad.unpack_dual(grad)
        bare, tangent = bare.detach(), torch.zeros_like(rows) if tangent is None else tangent.detach()
        return forward_ad.unpack_dual(value).primal.detach(), bare, tangent


def _has_forward_rules(run: Run, rows: Images, along: Images) -> bool:
    """Whether a product that has failed once works now: without a rule it fails every time."""
    try:
        _forward_over_reverse(run, rows, along)
    except RuntimeError:
        return False
    return True


@cache
def load_forward_rules() -> None:
    """torch compiles some of its rules when they are first needed, in a way of its own that it warns of."""
    with ALONE, ignore_warnings(FutureWarning), ignore_warnings(DeprecationWarning):
        import_module("torch._decomp.decompositions_for_jvp")


def _difference(step: float, run: Run, rows: Images, along: Images) -> tuple[PerImage, Images, Images]:
    """(grad(x + h v) - grad(x - h v)) / 2h with |2 h v| = step: sees the kinks that lie between the two."""
    size = norm(along)
    half = spread(step / 2 / torch.where(size > 0, size, 1), rows)
    (one, ahead), (other, behind) = (run(rows.detach() + way * half * along, False) for way in (1, -1))
    return (one + other).detach() / 2, (ahead + behind).detach() / 2, (ahead - behind).detach() / (2 * half)


class Again(torch.autograd.Function):
    """The node in the graph of the map."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, run: Run, rows: Images, *beside: Tensor) -> tuple[PerImage, Images]:
        ctx.engine, ctx.run = engine, run
        ctx.save_for_backward(rows, *beside)
        return run(rows.detach(), False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, on_value: PerImage, on_grad: Images) -> tuple[Tensor | None, ...]:
        rows, *beside = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        if not any(wanted[1:]):  # a Hessian is symmetric: what is pulled back is what is pushed forward
            _, grad, turned = product(ctx.engine, ctx.run, rows, on_grad)
            return None, None, turned + spread(on_value, grad) * grad
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            value, grad = ctx.run(leaf, True)
            inputs = [each for each, asked in zip([leaf, *beside], wanted, strict=True) if asked]
            # a network of straight pieces has a gradient that depends on nothing
            pairs = [(out, on) for out, on in ((value, on_value), (grad, on_grad)) if out.requires_grad]
            outs, ons = [out for out, _ in pairs], [on for _, on in pairs]
            found = iter(torch.autograd.grad(outs, inputs, ons, allow_unused=True))
        return (None, None, *[next(found) if asked else None for asked in wanted])


class Given(torch.autograd.Function):
    """A value that was found without a graph, with the derivative that belongs to it: `pull(cotangent)`."""

    @staticmethod
    def forward(ctx: Any, x: Images, value: Images, pull: Callable[[Images], Images]) -> Images:
        ctx.pull = pull
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, on_value: Images) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            return ctx.pull(on_value), None, None
