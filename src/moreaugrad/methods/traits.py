"""What a method may say of itself, and what holds of one that says nothing. Computes no map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moreaugrad.model.noise import Smoothing
from moreaugrad.types import Counts


class Traits:
    """The answers that the shell, the attacks and the command line ask of every method."""

    @property
    def noise(self) -> Smoothing | None:
        """The smoothing that makes the method random, if any."""
        return None

    @property
    def per_image(self) -> int:
        """How many rows of an image are there to be run together."""
        return 1 if self.noise is None else self.noise.samples

    @property
    def random(self) -> bool:
        """Whether another seed gives another map."""
        return self.noise is not None

    @property
    def once(self) -> bool:
        """Whether one gradient per image is all: then it does not pay to make the network fast first."""
        return False

    @property
    def differentiable(self) -> bool:
        """Whether the map itself has a derivative that `create_graph=True` can give."""
        return False

    @property
    def derived(self) -> bool:
        """Whether the derivative is found beside the map: then the map itself is made without a graph."""
        return False

    @property
    def second_order(self) -> bool:
        """Whether that derivative needs the network's second one, which a network with kinks does not have."""
        return True

    def slope_cost(self, gradients: Counts) -> Counts:
        """What the derivative of a map costs beside the map: each gradient is differentiated, which counts as two; a
        map that took none takes one."""
        return (2 * gradients).clamp_min(1)

    @property
    def reference(self) -> str | None:
        """For methods that compare with a baseline: which one where none is given, 'black' or 'zero'."""
        return None

    @property
    def several(self) -> Sequence[Mapping[str, Any]] | None:
        """The options of each map, where several are made of each image."""
        return None
