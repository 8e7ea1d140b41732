"""Shapes and protocols: what every part of the package shares. Computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

Images: TypeAlias = Float[Tensor, "n *shape"]  # a batch; the name is for images, any rank >= 2 will do
PerImage: TypeAlias = Float[Tensor, "n"]
Flags: TypeAlias = Bool[Tensor, "n"]
Counts: TypeAlias = Int[Tensor, "n"]
Labels: TypeAlias = Int[Tensor, "..."]  # which group an entry belongs to

ForwardFunc: TypeAlias = Callable[..., Any]
Target: TypeAlias = Any  # every form Captum knows; see model.inputs
Output: TypeAlias = Callable[[Any], Any] | str | int | None  # which part of what a network returns; None: the tensor
ScoreFunc: TypeAlias = Callable[[Any], Tensor]  # from what a network returns to scores (N, K) or (N,), row by row
Watch: TypeAlias = Callable[[int, int, Mapping[str, Any]], None]  # step, total, what is known so far


def ignore_progress(step: int, total: int, info: Mapping[str, Any]) -> None:
    """The progress callback of a call that nobody watches."""


class Score(Protocol):
    """A number per image and its gradient. Images never interact; works under `no_grad`.

    `draw` numbers the noise set of a stochastic score; the same number gives the same noise.
    """

    @property
    def samples(self) -> int:
        """Rows of the network spent per image and call."""
        ...

    @property
    def random(self) -> bool:
        """Whether another draw is another estimate."""
        ...

    def value_and_grad(self, x: Images, draw: int = 0, most: int | None = None) -> tuple[PerImage, Images]:
        """`most` asks for a part of the draw: that many samples."""
        ...

    def product(self, x: Images, along: Images, draw: int = 0) -> Images:
        """The Hessian times one direction per image."""
        ...

    def take(self, which: Int[Tensor, "k"]) -> Score:
        """The score of some of the images."""
        ...


class NoisyScore(Score, Protocol):
    """A score that is an average over draws, and can show how much the draws differ."""

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Values and gradients of 1 <= p <= most independent parts of the draw; their mean is the draw's."""
        ...


@runtime_checkable
class Prior(Protocol):
    """A penalty of the displacement, without its weight eta: three methods make one.

    A prior may define more, and is asked for it where it is needed:
    `level(u, keep)`, the amount whose prox keeps the share `keep` of the units (else found by bisection);
    `for_batch(x)`, the prior of a batch, where it depends on the images; `take(which)`, the prior of some of them (else
    `for_batch` is asked again);
    `active`, `hessian_product` and `stiffness` (see `TwiceDifferentiablePrior`), for maps with a graph;
    `convex = True`, without which `certify` refuses it; `default_sparsity`, the share of units kept where
    neither eta nor a sparsity is given (else 0.05).
    """

    def value(self, delta: Images) -> PerImage:
        """The penalty of each image."""
        ...

    def prox(self, delta: Images, amount: PerImage) -> Images:
        """argmin over d of amount * value(d) + |d - delta|^2 / 2."""
        ...

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        """The size of each unit (entry, group) that the prior keeps or drops as one."""
        ...


@runtime_checkable
class TwiceDifferentiablePrior(Prior, Protocol):
    """A prior with second derivatives where it has any: what implicit differentiation asks for."""

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        """The entries of units that are not dropped: those that follow a change of the input."""
        ...

    def hessian_product(self, delta: Images, q: Images) -> Images:
        """The second derivative of the value at delta, on its active entries, times q."""
        ...

    def stiffness(self, delta: Images) -> Images:
        """The largest eigenvalue of that second derivative, at each active entry; zero elsewhere."""
        ...
