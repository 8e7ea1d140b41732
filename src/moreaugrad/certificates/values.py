"""Between which limits every value of the map of a changed input lies."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class ValueGuarantee:
    """An interval for each value of the map at x', of the shape of the map; all of them hold at once.

    Attributes:
        lower: the least value.
        upper: the largest value.

    Example:
        >>> found = mg.ValueGuarantee(torch.tensor([0.2, 0.0, 0.0]), torch.tensor([0.4, 0.1, 0.0]))
        >>> found.stays, found.stays_zero
        (tensor([ True, False, False]), tensor([False, False,  True]))
    """

    lower: Float[Tensor, "..."]
    upper: Float[Tensor, "..."]

    @property
    def stays(self) -> Bool[Tensor, "..."]:
        """Entries that are surely not zero."""
        return self.lower > 0

    @property
    def stays_zero(self) -> Bool[Tensor, "..."]:
        """Entries that are surely zero."""
        return self.upper <= 0

    def holds(self, found: Float[Tensor, "..."], error: float = 0.0) -> bool:
        """Whether a map lies within the limits, or no farther outside than `error` in any entry."""
        return bool(((found >= self.lower - error) & (found <= self.upper + error)).all())
