"""The result of explaining a batch: the maps, how they were found, and how accurate they are."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.batch import relative_error
from moreaugrad.files import read_npz, with_ending, write_npz
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

KNOWN = 0.3  # largest relative error of a map that counts as known: maps of two seeds have a cosine near 0.9
_LISTED = 10  # images in the text of a result


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """Maps of a batch of N images, with what is known about each. Fields the method does not provide are None.

    `len`, indexing and iteration go by image: `explanation[i]` is a batch of one. Printing it shows a line per image.

    Attributes:
        map: raw values of the inputs' shape (N, C, H, W); (N, 1, H, W) from methods that have no channels; a tuple
            where the inputs were one.
        delta: displacement from the input to the minimum of the envelope, of the map's shape.
        target: class that was explained, in any of Captum's forms.
        eta: weight of the prior (N,): as given, or as the requested sparsity made it.
        score: class score of the input itself, (N,).
        envelope: value of the envelope at the input, (N,).
        residual: distance from optimality, or from completeness (N,); NaN: not measured.
        converged: whether the residual is within its own noise and the map is known to within 30 %, so that another
            seed gives nearly the same map, (N,). For FGVis: whether a mask met its goal.
        gradients: sample gradients spent, (N,).
        stderr: standard error of each entry, from the noise; of an entry that a prior set to zero: before it did.
        coarse: the map at the resolution of the layer it was read from (N, h, w).
        seed: of the noise.
        method, options: name of the method and the options it ran with.

    Example:
        >>> found = mg.MoreauGrad(net, rho=0.1).explain(x)
        >>> found.map.shape, len(found), len(found[0])
        (torch.Size([2, 3, 16, 16]), 2, 1)
        >>> found.method
        'MoreauGrad'
    """

    map: MapTensor
    delta: MapOrNone = None  # type: ignore[assignment]
    target: Target = None
    eta: PerImageOrNone = None  # type: ignore[assignment]
    score: PerImageOrNone = None  # type: ignore[assignment]
    envelope: PerImageOrNone = None  # type: ignore[assignment]
    residual: PerImageOrNone = None  # type: ignore[assignment]
    converged: FlagsOrNone = None  # type: ignore[assignment]
    gradients: CountsOrNone = None  # type: ignore[assignment]
    stderr: MapOrNone = None  # type: ignore[assignment]
    coarse: CoarseOrNone = None  # type: ignore[assignment]
    seed: int | None = None
    method: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def relative_error(self) -> PerImageOrNone:
        """How well each map is known: the norm of `stderr` over the entries that the map keeps, divided by the norm of
        the map, (N,). Maps of two seeds have a cosine of about 1 - relative_error^2. None: not measured, or no noise.
        """
        if self.stderr is None:
            return None
        joined = [torch.cat([part.flatten(1) for part in _parts(parts)], 1) for parts in (self.map, self.stderr)]
        return relative_error(*joined)

    @property
    def kept(self) -> PerImage:
        """Share of the entries that are not zero, (N,)."""
        return _share([part != 0 for part in _parts(self.map)])

    @property
    def pixels_kept(self) -> PerImage:
        """Share of the pixels with a channel that is not zero (N,); of the entries where there are no pixels."""
        return _share([(part != 0).any(1) if part.ndim == 4 else part != 0 for part in _parts(self.map)])

    def __len__(self) -> int:
        return len(_parts(self.map)[0])

    def __getitem__(self, index: SupportsIndex | slice) -> Explanation:
        rows = index if isinstance(index, slice) else self._row(index)
        target = self.target
        if isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1):  # else one serves all
            target = target[rows]
        return replace(replace(self, target=None)._with_tensors(lambda tensor: tensor[rows]), target=target)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        lines = [_heading(self)]
        lines += [f"  {i}: {_line(self[i])}" for i in range(min(len(self), _LISTED))]
        if len(self) > _LISTED:
            lines.append(f"  ... and {len(self) - _LISTED} more")
        return "\n".join(lines)

    def to(self, device: torch.device | str) -> Explanation:
        """A copy with every tensor on another device."""
        return self._with_tensors(lambda tensor: tensor.to(device))

    def cpu(self) -> Explanation:
        """A copy with every tensor on the CPU."""
        return self.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one .npz without pickle, whole or not at all. Half precisions are stored as float32.

        Args:
            path: file to write; `.npz` is added where it is missing.

        Returns:
            The path of the file.
        """
        return write_npz(with_ending(path, ".npz"), vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read a file written by `save`.

        Args:
            path: the file; `.npz` may be left out.

        Returns:
            The Explanation, on the CPU.

        Raises:
            ValueError: the file is damaged, of another kind, or written by a newer version.

        Example:
            >>> path = mg.Explanation(map=torch.zeros(1, 3, 8, 8)).save("maps")
            >>> mg.Explanation.load(path).map.shape
            torch.Size([1, 3, 8, 8])
        """
        found = Path(path)
        return cls(**read_npz(found if found.is_file() else with_ending(path, ".npz")))

    def show(self, image: Any = None, signed: bool = False, index: int = 0) -> Figure:
        """Draw one image: the input if given, its map, and an overlay of both.

        Args:
            image: the picture as the model saw it, before normalisation: RGB, of the map's height and width; a
                batch (N, 3, H, W) is indexed. None: the map alone.
            signed: draw the sum over the channels in red and blue instead of the sum of absolute values.
            index: which image of the batch.

        Returns:
            A matplotlib figure; maps without pixels (table rows, token embeddings) are drawn as bars.

        Example:
            >>> figure = mg.Explanation(map=torch.rand(2, 3, 8, 8)).show(torch.rand(3, 8, 8), index=1)
            >>> [axes.get_title() for axes in figure.axes[:3]]
            ['input', 'map', 'overlay']
        """
        from moreaugrad.plotting import pictures  # on use: results can be computed without matplotlib

        one = self[index]
        parts = _parts(one.map)
        if len(parts) > 1:
            raise ValueError(
                f"show draws the map of one input, got a tuple of {len(parts)}; "
                "draw each with moreaugrad.plotting.pictures.panel or bars"
            )
        title = " \N{MIDDLE DOT} ".join([self.method or "map", *_facts(one)])
        if parts[0].ndim == 4:
            batched = isinstance(image, Tensor) and image.ndim == 4
            return pictures.panel(image[index] if batched else image, parts[0][0], title, signed)
        if image is not None:
            raise ValueError(f"an image needs a map (N, C, H, W), got {tuple(parts[0].shape)}; call show() without it")
        return pictures.bars(parts[0][0], title, signed)

    def _row(self, index: SupportsIndex) -> slice:
        try:
            position = range(len(self))[index]
        except IndexError:
            raise IndexError(f"index must name one of {len(self)} images, got {index}") from None
        return slice(position, position + 1)

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> Explanation:
        """A copy with every tensor changed."""

        def changed(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(changed, value))
            return change(value) if isinstance(value, Tensor) else value

        return replace(self, **{name: changed(value) for name, value in vars(self).items()})


def _parts(maps: Maps) -> tuple[Tensor, ...]:
    return maps if isinstance(maps, tuple) else (maps,)


def _share(flags: list[Tensor]) -> PerImage:
    rows = torch.cat([flag.flatten(1) for flag in flags], 1)
    return rows.count_nonzero(1) / rows.shape[1]


def _heading(result: Explanation) -> str:
    shapes = " and ".join(str(tuple(part.shape[1:])) for part in _parts(result.map))
    by = f" by {result.method}" if result.method else ""
    cost = ""
    if result.gradients is not None:
        least, most = int(result.gradients.min()), int(result.gradients.max())
        cost = f", {most if least == most else f'{least} to {most}'} gradients each"
    seed = "" if result.seed is None else f", seed {result.seed}"
    return f"Explanation{by}: {len(result)} x {shapes}{cost}{seed}"


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


def describe_accuracy(one: Explanation) -> list[str]:
    """How well the map of one image is known, in words, with a warning where it is not."""
    if one.relative_error is None:
        error = 0.0
        found = []
    else:
        error = one.relative_error.item()
        found = [f"known to within {100 * error:{'.0f' if error > 0.1 else '.2g'}} %"]
    if error > KNOWN:
        return [f"{found[0]} only: another seed gives another map; spend more gradients"]
    if math.isnan(error):
        return ["how well it is known was not measured; spend more gradients"]
    if one.converged is not None and not one.converged.item():
        found.append("not converged; spend more gradients")
    return found


def _line(one: Explanation) -> str:
    found = _facts(one)
    if one.eta is not None and one.eta.item() > 0:
        found.append(f"eta {one.eta.item():.3g}")
    found += describe_accuracy(one)
    if not all(bool(part.isfinite().all()) for part in _parts(one.map)):
        found.append("the map holds NaN or infinity")
    if not one.kept.any():
        sparse = one.eta is not None and one.eta.item() > 0
        why = "eta is above every gradient entry; lower it or use sparsity="
        other = "the score does not change with the input, or the penalty of a mask outweighs it"
        found.append(f"all zero: {why if sparse else other}")
    return ", ".join(found)
