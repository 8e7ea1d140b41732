"""The words everyone shares: shapes, protocols and the frozen results passed between parts.

Never holds a computation on tensors, a file, or the name of a method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

Images: TypeAlias = Float[Tensor, "n *shape"]  # a batch; the name is for images, any rank >= 2 will do
PerImage: TypeAlias = Float[Tensor, "n"]
Flags: TypeAlias = Bool[Tensor, "n"]
Counts: TypeAlias = Int[Tensor, "n"]
Labels: TypeAlias = Int[Tensor, "..."]  # which group an entry belongs to

ForwardFunc: TypeAlias = Callable[..., Any]
Target: TypeAlias = Any  # every form Captum knows; see core.targets
Watch: TypeAlias = Callable[[int, int, Mapping[str, Any]], None]  # step, total, what is known so far


def unwatched(step: int, total: int, info: Mapping[str, Any]) -> None:
    """The watcher of a call that nobody watches."""


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

    def take(self, which: Int[Tensor, "k"]) -> Score:
        """The score of some of the images."""
        ...


class NoisyScore(Score, Protocol):
    """A score that is an average over draws, and can show how much the draws differ."""

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Values and gradients of 1 <= p <= most independent parts of the draw; their mean is the draw's."""
        ...


class Prior(Protocol):
    """A convex penalty of the displacement, without its weight (eta lives in the envelope)."""

    def value(self, delta: Images) -> PerImage: ...

    def prox(self, delta: Images, amount: PerImage) -> Images:
        """argmin over d of amount * value(d) + |d - delta|^2 / 2."""
        ...

    def level(self, u: Images, keep: float) -> PerImage:
        """The amount whose prox keeps the share `keep` of the units (entries or groups) of u."""
        ...

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        """The size of each unit that the prior keeps or drops as one."""
        ...

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        """The entries of units that are not dropped: those that follow a change of the input."""
        ...

    def bend(self, delta: Images, q: Images) -> Images:
        """The second derivative of the value at delta, on its active entries, times q."""
        ...

    def stiffness(self, delta: Images) -> Images:
        """The largest eigenvalue of that second derivative, at each active entry; zero elsewhere."""
        ...

    def take(self, which: Int[Tensor, "k"]) -> Prior:
        """The prior of some of the images."""
        ...


@dataclass(frozen=True, slots=True)
class Solution:
    """Where a solve stopped, and how far from optimal that point is."""

    delta: Images
    residual: PerImage  # |delta - prox(-rho * grad(x + delta))| / rho, at delta itself; NaN: not measured
    tol: PerImage  # what the residual is held against
    value: PerImage  # the score at x + delta, on the noise of the residual
    eta: PerImage  # weight of the prior: as given, or as the asked sparsity made it
    gradients: Counts  # sample-gradients spent, the residual's included
    stderr: Images | None = None  # of the dual gradient, per entry; None for a deterministic score

    @property
    def converged(self) -> Flags:
        """NaN compares false, so a diverged image is never called converged."""
        return self.residual <= self.tol


class Solver(Protocol):
    """An algorithm that minimises an envelope's objective."""

    def run(self, problem: Any, watch: Watch = unwatched) -> Solution: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method found for one batch; the fields that it has no word for stay None."""

    map: Images
    gradients: Counts
    delta: Images | None = None
    eta: PerImage | None = None
    envelope: PerImage | None = None
    residual: PerImage | None = None
    converged: Flags | None = None
    stderr: Images | None = None
    coarse: Float[Tensor, "n *coarse"] | None = None  # the map at the resolution of the layer that it was read from


@dataclass(frozen=True, slots=True)
class Item:
    """One image on its way in: 8-bit upright RGB pixels, and what to call it."""

    key: str
    pixels: Any  # PIL.Image.Image in mode RGB
    target: int | None = None
