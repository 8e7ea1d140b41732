"""The top-k attack: takes saliency away from the most salient entries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral

from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.base import AttackedModel, Maps
from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.map_attack import MapAttack, magnitude, shares
from moreaugrad.attacks.noise_free import NoiseFree, check_noise_free
from moreaugrad.batch import total
from moreaugrad.metrics.similarity import count_top, require_top, top_entries
from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, eq=False)
class TopK(MapAttack):
    """Makes `sum of |map| over T / sum of |map|` small, where T are the k largest entries of the clean map.

    The standard attack on maps (Ghorbani et al., 2019). Zeros of a sparse map are never in T.

    Args:
        k: number of entries (an int), or their share (a float in (0, 1]); default 40 % of the clean map's non-zeros.
        per_pixel: whether to sum |map| over channels first.
        noise_free: for the MoreauGrad family: attack the gradient at the solution without the noise, as the published
            attack does, instead of the map; the entries T are those of the map.
        **options: those of `MapAttack`.

    Example:
        >>> found = mg.TopK(mg.SmoothGrad(net), epsilon=0.5, k=0.1, steps=3).perturb(x)
        >>> bool((found.objective <= found.trace[0]).all())
        True
    """

    k: float | int | None = field(default=None, kw_only=True)
    per_pixel: bool = field(default=False, kw_only=True)
    noise_free: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options(flags="noise_free per_pixel")
        if self.noise_free:
            check_noise_free(self.attacked)
        if self.k is None:
            return
        validate.number("k", self.k)
        if isinstance(self.k, Integral) and self.k < 1:
            raise ValueError(f"k must be at least 1 entry, or a share in (0, 1], got {self.k}")
        if not isinstance(self.k, Integral) and not 0 < self.k <= 1:
            raise ValueError(f"k must be a share of the entries in (0, 1], or a whole number of them, got {self.k}")

    def make_model(self, x: Images, target: Tensor, logits: Tensor) -> AttackedModel:
        model = super().make_model(x, target, logits)
        if not self.noise_free:
            return model
        return replace(model, method=NoiseFree(model.method), surrogate=NoiseFree(model.surrogate))

    def reference(self, clean: Maps, model: AttackedModel, ball: Ball) -> Float[Tensor, "n d"]:
        """A mask of the largest entries."""
        return largest_entries(magnitude(clean, self.per_pixel).flatten(1), self.k)

    def objective(self, maps: Maps, reference: Float[Tensor, "n d"]) -> PerImage:
        return total(shares(magnitude(maps, self.per_pixel)).flatten(1) * reference)


def largest_entries(size: Float[Tensor, "n d"], k: float | int | None) -> Float[Tensor, "n d"]:
    """1 at the k largest entries of each row that are not zero, as the metric `topk_intersection` takes them."""
    require_top("k", k, size.shape[1])
    return top_entries(size, count_top(k, size)).to(size.dtype)
