"""The result of explaining a batch: the maps, how they were found, and how far to trust them.

Owns how a result is indexed, summarised, stored and shown; computes no map.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import archive
from moreaugrad.files import with_ending
from moreaugrad.plotting import pictures
from moreaugrad.types import Counts, Flags, Images, PerImage, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Maps: TypeAlias = Images | tuple[Tensor, ...]  # a tuple where the inputs were one
Option: TypeAlias = str | float | int | None
if TYPE_CHECKING:  # what nearly every user meets, so that editors and type checkers need no casts
    MapTensor: TypeAlias = Tensor
    MapOrNone: TypeAlias = Tensor
    PerImageOrNone: TypeAlias = Tensor
    FlagsOrNone: TypeAlias = Tensor
    CountsOrNone: TypeAlias = Tensor
    CoarseOrNone: TypeAlias = Tensor
else:
    MapTensor, MapOrNone = Maps, Maps | None
    PerImageOrNone, FlagsOrNone, CountsOrNone = PerImage | None, Flags | None, Counts | None
    CoarseOrNone = Float[Tensor, "n *coarse"] | None

_LISTED = 10  # images that a summary tells of


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """Maps of a batch and what is known about them; what a method has no word for is None.

    `len`, indexing and iteration go by image; `explanation[i]` is a batch of one.
    """

    map: MapTensor  # raw values, of the inputs' shape; (N, 1, H, W) from methods that know no channels
    delta: MapOrNone = None  # type: ignore[assignment]  # where the envelope's minimum lies, seen from the input
    target: Target = None  # what was explained, in any of Captum's forms
    eta: PerImageOrNone = None  # type: ignore[assignment]  # weight of the prior: as given, or as the asked sparsity made it
    score: PerImageOrNone = None  # type: ignore[assignment]  # of the input itself
    envelope: PerImageOrNone = None  # type: ignore[assignment]
    residual: PerImageOrNone = None  # type: ignore[assignment]  # distance from optimality, or from completeness; NaN: not measured
    converged: FlagsOrNone = None  # type: ignore[assignment]
    gradients: CountsOrNone = None  # type: ignore[assignment]  # sample-gradients spent
    stderr: MapOrNone = None  # type: ignore[assignment]  # per entry of the map
    coarse: CoarseOrNone = None  # type: ignore[assignment]  # the map at the resolution of the layer that it was read from
    seed: int | None = None
    method: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def kept(self) -> PerImage:
        """Share of the entries that are not zero."""
        return _share([part != 0 for part in _parts(self.map)])

    @property
    def pixels_kept(self) -> PerImage:
        """Share of the pixels with a channel that is not zero; of the entries where there are no pixels."""
        return _share([(part != 0).any(1) if part.ndim == 4 else part != 0 for part in _parts(self.map)])

    def __len__(self) -> int:
        return len(_parts(self.map)[0])

    def __getitem__(self, index: SupportsIndex | slice) -> Explanation:
        rows = index if isinstance(index, slice) else self._row(index)
        target = self.target if _shared(self.target) else self.target[rows]
        return replace(self._each(lambda tensor: tensor[rows]), target=target)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        lines = [_heading(self)]
        lines += [f"  {i}: {_line(self[i])}" for i in range(min(len(self), _LISTED))]
        if len(self) > _LISTED:
            lines.append(f"  ... and {len(self) - _LISTED} more")
        return "\n".join(lines)

    def to(self, device: torch.device | str) -> Explanation:
        return self._each(lambda tensor: tensor.to(device))

    def cpu(self) -> Explanation:
        return self.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes one .npz without pickle (half precisions as float32), whole or not at all; returns its path."""
        found = with_ending(path, ".npz")
        archive.write(found, {each.name: getattr(self, each.name) for each in fields(self)})
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        found = Path(path)
        return cls(**archive.read(found if found.is_file() else with_ending(path, ".npz")))

    def show(self, image: Any = None, signed: bool = False, index: int = 0) -> Figure:
        """The picture of one image: the input where given, its map, and both in one.

        `image` is what the model saw, before normalisation: RGB, of the map's height and width.
        Maps without pixels (table rows, token embeddings) are drawn as bars.
        """
        one = self[index]
        parts = _parts(one.map)
        if len(parts) > 1:
            raise ValueError(
                f"show draws the map of one input, got a tuple of {len(parts)}; "
                "draw each with moreaugrad.plotting.pictures.panel or bars"
            )
        title = " \N{MIDDLE DOT} ".join([self.method or "map", *_facts(one)])
        drawing = parts[0][0]
        if drawing.ndim == 3:
            return pictures.panel(_pick(image, index), drawing, title, signed)
        if image is not None:
            raise ValueError(f"an image needs a map (N, C, H, W), got {tuple(parts[0].shape)}; call show() without it")
        return pictures.bars(drawing, title, signed)

    def _row(self, index: SupportsIndex) -> slice:
        position = operator.index(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"index must name one of {len(self)} images, got {index}")
        return slice(position, position + 1)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Explanation:
        """The same with every tensor changed."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changed[each.name] = change(value)
            elif isinstance(value, tuple):
                changed[each.name] = tuple(change(part) if isinstance(part, Tensor) else part for part in value)
        return replace(self, **changed)


def _parts(maps: Maps) -> tuple[Tensor, ...]:
    return maps if isinstance(maps, tuple) else (maps,)


def _share(flags: list[Tensor]) -> PerImage:
    rows = torch.cat([flag.flatten(1) for flag in flags], 1)
    return rows.count_nonzero(1) / rows.shape[1]


def _shared(target: Target) -> bool:
    """Whether one target serves every image."""
    return target.numel() == 1 if isinstance(target, Tensor) else not isinstance(target, list)


def _pick(image: Any, index: int) -> Any:
    return image[index] if isinstance(image, Tensor) and image.ndim == 4 else image


def _heading(result: Explanation) -> str:
    shapes = " and ".join(str(tuple(part.shape[1:])) for part in _parts(result.map))
    by = f" by {result.method}" if result.method else ""
    seed = "" if result.seed is None else f", seed {result.seed}"
    return f"Explanation{by}: {len(result)} x {shapes}{_spent(result)}{seed}"


def _spent(result: Explanation) -> str:
    if result.gradients is None:
        return ""
    least, most = int(result.gradients.min()), int(result.gradients.max())
    return f", {most} gradients each" if least == most else f", {least} to {most} gradients each"


def _facts(one: Explanation) -> list[str]:
    """What is known about one image and its map, in a few words each."""
    found = []
    if one.target is not None:
        target = one.target.item() if isinstance(one.target, Tensor) else one.target
        found.append(f"target {target[0] if isinstance(target, list) else target}")
    if one.score is not None:
        found.append(f"score {one.score.item():.4g}")
    entries, pixels = (f"{100 * share.item():.3g} %" for share in (one.kept, one.pixels_kept))
    found.append(f"keeps {entries} of the entries" + (f" ({pixels} of the pixels)" if pixels != entries else ""))
    return found


def _line(one: Explanation) -> str:
    found = _facts(one)
    if one.eta is not None:
        found.append(f"eta {one.eta.item():.3g}")
    if one.residual is not None:
        known = not one.residual.isnan().any()
        found.append(f"residual {one.residual.item():.2g}" if known else "residual not known")
    if one.converged is not None:
        found.append("converged" if one.converged.item() else "not converged")
    if not all(bool(part.isfinite().all()) for part in _parts(one.map)):
        found.append("the map holds NaN or infinity")
    if not one.kept.any():
        found.append(_why_zero(one))
    return ", ".join(found)


def _why_zero(one: Explanation) -> str:
    if one.eta is not None and one.eta.item() > 0:
        return "all zero: eta is above every gradient entry; lower it or use sparsity="
    return "all zero: the score does not change with the input, or the penalty of a mask outweighs it"
