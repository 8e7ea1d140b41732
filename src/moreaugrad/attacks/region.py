"""The region attack: draws a map to a place of the attacker's choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from moreaugrad.attacks.base import AttackedModel, Maps
from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.map_attack import MapAttack, magnitude, shares
from moreaugrad.batch import total
from moreaugrad.metrics.localisation import regions
from moreaugrad.types import Images, PerImage

Inside = Bool[Tensor, "n h w"]
_FORMS = "a boolean mask (H, W) or (N, H, W), or a box of left, top, right, bottom in pixels, one or one per image"


@dataclass(frozen=True, eq=False)
class Region(MapAttack):
    """Draws |map| into a region: makes minus the share of |map|, summed over channels, that lies there small.

    Use it to see whether a map can be made to point at an object that has nothing to do with the class.

    Args:
        region: a boolean mask (H, W) or (N, H, W), or a box (left, top, right, bottom) in pixels, one or one per image.
        **options: those of `MapAttack`; the inputs must be images (N, C, H, W).

    Example:
        >>> found = mg.Region(mg.SmoothGrad(net), epsilon=0.5, region=(0, 0, 8, 8), steps=3).perturb(x)
        >>> bool((found.objective <= found.trace[0]).all())
        True
    """

    images_only: ClassVar[bool] = True

    region: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._read()

    def check_inputs(self, x: Images) -> None:
        super().check_inputs(x)
        self._inside(x)

    def _read(self) -> Tensor:
        try:
            found = torch.as_tensor(self.region)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"region must be {_FORMS}, got {type(self.region).__name__}") from None
        mask = found.dtype == torch.bool
        if (mask and found.ndim not in (2, 3)) or (not mask and (found.ndim not in (1, 2) or found.shape[-1] != 4)):
            raise ValueError(f"region must be {_FORMS}, got a {found.dtype} tensor of shape {tuple(found.shape)}")
        return found

    def _inside(self, x: Images) -> Inside:
        """The pixels of the region, for each image."""
        given, plane = self._read(), tuple(x.shape[-2:])
        if given.dtype == torch.bool:
            if tuple(given.shape) not in (plane, (len(x), *plane)):
                raise ValueError(
                    f"a mask must have the shape of the images, {plane} or {(len(x), *plane)}, got {tuple(given.shape)}"
                )
            found = given.expand(len(x), *plane)
        else:
            if given.ndim == 2 and len(given) != len(x):
                raise ValueError(f"boxes must be one, or one per image, got {len(given)} for {len(x)} images")
            found = regions(given.expand(len(x), 4), tuple(x.shape))
        share = found.flatten(1).double().mean(1)
        if bool(((share == 0) | (share == 1)).any()):
            raise ValueError(
                f"region must hold some pixels of each image and not all, got {int((share == 0).sum())} empty and "
                f"{int((share == 1).sum())} whole ones for images of {plane[0]} x {plane[1]} pixels"
            )
        return found.to(x.device)

    def reference(self, clean: Maps, model: AttackedModel, ball: Ball) -> Inside:
        return self._inside(ball.x)

    def objective(self, maps: Maps, reference: Inside) -> PerImage:
        return -total(shares(magnitude(maps)) * reference[:, None])
