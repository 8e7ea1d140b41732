"""The result of explaining a batch: the maps, how they were found, and how accurate they are."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import wording
from moreaugrad.batch import join_rows, relative_error
from moreaugrad.files import pack_npz, read_npz, with_ending, write_npz
from moreaugrad.model.statistics import REPORTED, read_statistic
from moreaugrad.source import InputSource
from moreaugrad.stored import find_fault
from moreaugrad.types import Counts, Flags, Images, PerImage, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moreaugrad.plotting.explanation import Drawing
    from moreaugrad.plotting.pictures import Picture

Maps: TypeAlias = Images | tuple[Tensor, ...]  # a tuple where the inputs were one
Option: TypeAlias = str | float | int | None
if TYPE_CHECKING:  # what nearly every user meets, so that editors and type checkers need no casts
    MapTensor: TypeAlias = Tensor
    MapOrNone: TypeAlias = Tensor
    PerImageOrNone: TypeAlias = Tensor
    FlagsOrNone: TypeAlias = Tensor
    CountsOrNone: TypeAlias = Tensor
    CoarseOrNone: TypeAlias = Tensor
    MomentsOrNone: TypeAlias = Tensor | None
else:
    MapTensor, MapOrNone = Maps, Maps | None
    PerImageOrNone, FlagsOrNone, CountsOrNone = PerImage | None, Flags | None, Counts | None
    CoarseOrNone = Float[Tensor, "n *coarse"] | None
    MomentsOrNone = Float[Tensor, "n 3 *stack"] | tuple[Tensor, ...] | None

_LISTED = 10  # images in the text of a result
_NUMBERS = ("score", "envelope", "eta", "residual", "relative_error", "converged", "gradients", "kept", "pixels_kept")


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
            seed gives nearly the same map, (N,); fixed noise is taken as it is. For FGVis: whether a mask met its goal.
        gradients: sample gradients spent, (N,).
        stderr: standard error of each entry, from the noise; of an entry that a prior set to zero: before it did.
        moments: means over the noisy copies of the gradient, of its square and of its votes, (N, 3, ...): what
            `statistics` is made of. Not saved.
        coarse: the map at the resolution of the layer it was read from (N, h, w).
        seed: of the noise.
        method, options: name of the method and the options it ran with.
        source: the inputs, the photos they were made from and the names of the classes, for drawing.

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
    moments: MomentsOrNone = None
    coarse: CoarseOrNone = None  # type: ignore[assignment]
    seed: int | None = None
    method: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    source: InputSource | None = None

    @property
    def labels(self) -> list[str | None]:
        """Name of the class that was explained in each image, None where it has none."""
        return [None if self.source is None else self.source.label(each) for each in self._targets()]

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
    def statistics(self) -> dict[str, MapTensor] | None:
        """Other maps of the same gradients, by name: "mean", "rms", "votes" and "geometric", before any threshold.

        They cost no further gradient: see `STATISTICS` for what they are. None: the method took no noisy gradients,
        or the result was read from a file.

        Example:
            >>> found = mg.MoreauGrad(net, budget=80).explain(x)
            >>> sorted(found.statistics), found.statistics["rms"].shape
            (['geometric', 'mean', 'rms', 'votes'], torch.Size([2, 3, 16, 16]))
        """
        if self.moments is None:
            return None
        parts = [{name: read_statistic(name, part) for name in REPORTED} for part in _parts(self.moments)]
        return {name: _like(self.moments, [part[name] for part in parts]) for name in REPORTED}

    @property
    def kept(self) -> PerImage:
        """Share of the entries that are not zero, (N,)."""
        return _share([part != 0 for part in _parts(self.map)])

    @property
    def pixels_kept(self) -> PerImage:
        """Share of the pixels with a channel that is not zero (N,); of the entries where there are no pixels."""
        return _share([(part != 0).any(1) if part.ndim == 4 else part != 0 for part in _parts(self.map)])

    @property
    def finite(self) -> Flags:
        """Whether the map holds neither NaN nor infinity, (N,)."""
        return torch.cat([part.isfinite().flatten(1) for part in _parts(self.map)], 1).all(1)

    def __len__(self) -> int:
        return len(_parts(self.map)[0])

    def __getitem__(self, index: SupportsIndex | slice) -> Explanation:
        rows = index if isinstance(index, slice) else self._row(index)
        target = self.target
        if isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1):  # else one serves all
            target = target[rows]
        some = replace(self, target=None)._with_tensors(lambda tensor: tensor[rows])
        return replace(some, target=target, source=None if self.source is None else self.source.take(rows))

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        listed = enumerate(self[:_LISTED].facts())  # before any number is computed: a batch may be long
        lines = [_heading(self), *(f"  {i}: {', '.join(wording.describe_map(each))}" for i, each in listed)]
        if len(self) > _LISTED:
            lines.append(f"  ... and {len(self) - _LISTED} more")
        return "\n".join(lines)

    def to(self, device: torch.device | str) -> Explanation:
        """A copy with every tensor on another device."""
        moved = self._with_tensors(lambda tensor: tensor.to(device))
        return replace(moved, source=None if self.source is None else self.source.to(device))

    def cpu(self) -> Explanation:
        """A copy with every tensor on the CPU."""
        return self.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one .npz without pickle, whole or not at all. Half precisions become float32, images 8-bit RGB.

        Args:
            path: file to write; `.npz` is added where it is missing.

        Returns:
            The path of the file.
        """
        return write_npz(with_ending(path, ".npz"), self._stored())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes, for an archive or a database.

        Returns:
            The bytes; equal results give equal bytes.

        Example:
            >>> mg.Explanation(map=torch.zeros(1, 3, 8, 8)).to_bytes()[:2]
            b'PK'
        """
        pack_npz(handle := BytesIO(), self._stored())
        return handle.getvalue()

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
        file = found if found.is_file() else with_ending(path, ".npz")
        values = read_npz(file)
        if fault := find_fault(values):
            raise ValueError(f"{file} must be as Explanation.save wrote it, got {fault}; write it again")
        inputs = values.pop("source_inputs", None)
        source = None if inputs is None else InputSource.restore(values["source"], inputs)
        return cls(**values | {"source": source})

    def show(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        index: int = 0,
        image: Any = None,
        whole: bool = False,
        signed: bool = False,
        names: Sequence[Any] | None = None,
        kind: str | Sequence[str | None] | None = None,
    ) -> Figure:
        """Draw one image, its map, and an overlay of both; other inputs by their kind.

        A notebook shows the figure at once. In a script it is returned, and opens with `plt.show()` where pyplot was
        imported before; with a `path` it is saved.

        Args:
            path: file to write, .png, .pdf or .svg; None: only shown.
            index: which image of the batch.
            image: another picture than the one that was explained: a path, PIL image, array (H, W, 3) or tensor
                (3, H, W) in [0, 1]; a batch (N, 3, H, W) is indexed. It is as the model saw it, or an original that
                the model's preprocessing can cut.
            whole: draw on the whole photo instead of the part that the model saw.
            signed: draw the sum over the channels in red and blue instead of the sum of absolute values. Maps that are
                never negative, such as those of rms or votes, keep colours for one sign.
            names: of the columns of a row, or the tokens of a text; for several inputs a list with one entry each.
            kind: "image" (C, H, W), "film" (C, T, H, W), "signal" (C, T), "tokens" (T, D) or "row"; None: by shape.

        Returns:
            A matplotlib figure.

        Example:
            >>> figure = mg.explain(net, photo, "gradient").show("map.png")
            >>> [axes.get_title() for axes in figure.axes[:3]]
            ['input', 'map', 'overlay']
            >>> row = mg.Explanation(map=torch.tensor([[0.1, -0.7]]))
            >>> figure = row.show(names=["age", "income"], signed=True)
        """
        from moreaugrad.plotting import display, explanation, pictures  # on use: results need no matplotlib

        photos = () if self.source is None else self.source.photos
        file = None if path is None else display.check_path(path, [each.file for each in photos])
        if isinstance(image, Tensor) and image.ndim == 4:
            image = image[index]
        signs = signed and any(bool((part < 0).any()) for part in _parts(self.map))
        drawing = explanation.Drawing(image=image, whole=whole, signed=signs, names=names, kind=kind)
        figure = self._draw(index, drawing)
        if file is None:
            display.present(figure)
        else:
            pictures.write(figure, file)
        return figure

    def _repr_png_(self) -> bytes:
        """What a notebook shows for a cell that ends in an explanation: its first images."""
        from moreaugrad.plotting import explanation

        several = len(self) > 1 and isinstance(self.map, Tensor) and self.map.ndim == 4
        return (self._draw_batch() if several else self._draw(0, explanation.Drawing()))._repr_png_()

    def _draw(self, index: int, drawing: Drawing) -> Picture:
        one = self[index]
        (facts,) = one.facts()
        known = [*wording.describe_image(facts), *wording.describe_accuracy(facts)]
        title = " \N{MIDDLE DOT} ".join([_name_method(self) or "map", *known])
        return drawing.draw(_parts(one.map), one.source, title)

    def _draw_batch(self) -> Picture:
        from moreaugrad.plotting.explanation import MOST_TILES, draw_batch

        some = self[:MOST_TILES]
        names = [wording.describe_image(each)[0] for each in some.facts()]
        return draw_batch(some.map, some.source, names, _heading(self))

    def to_dict(self) -> dict[str, Any]:
        """What is known, as plain numbers and text that JSON takes; without the maps.

        Returns:
            `method`, `seed`, `shape`, `options`, and `images`: a dictionary each with `target`, `label`, `score`,
            `kept`, `relative_error` and the other fields. What is not known, NaN and infinity are None.

        Example:
            >>> found = mg.Gradient(net).explain(x, target=3).to_dict()
            >>> found["method"], found["images"][1]["target"], found["images"][1]["kept"]
            ('Gradient', 3, 1.0)
        """
        shape = [list(part.shape[1:]) for part in _parts(self.map)]
        images = [{name: _plain(value) for name, value in each.items()} for each in self.facts()]
        options = {name: _plain(value) for name, value in self.options.items()}
        whole = {"method": self.method, "seed": self.seed, "shape": shape if isinstance(self.map, tuple) else shape[0]}
        return whole | {"options": options, "images": images}

    @classmethod
    def concat(cls, parts: Iterable[Explanation]) -> Explanation:
        """Join explanations of several batches, in their order.

        Args:
            parts: explanations whose maps have one shape.

        Returns:
            One Explanation of all images. What only some parts know, or know differently (such as a seed), is left out.

        Raises:
            ValueError: there are no parts, or their maps differ in shape.

        Example:
            >>> method = mg.Gradient(net)
            >>> len(mg.Explanation.concat([method.explain(x), method.explain(x[:1])]))
            3
        """
        every = list(parts)
        shapes = {str([tuple(part.shape[1:]) for part in _parts(each.map)]) for each in every}
        if len(shapes) != 1:
            came = f"maps of {', '.join(sorted(shapes))}" if shapes else "none"
            raise ValueError(f"parts must be explanations whose maps have one shape, got {came}; keep them in a list")
        values = {
            name: join_rows([getattr(each, name) for each in every]) for name in vars(every[0]) if name != "target"
        }
        shared = dict(each for each in every[0].options.items() if all(each in one.options.items() for one in every))
        values |= {"target": _join_targets(every), "method": values["method"] or "", "options": shared}
        sources = [each.source for each in every if each.source is not None]
        return cls(**values | {"source": InputSource.join(sources) if len(sources) == len(every) else None})

    def facts(self) -> list[dict[str, Any]]:
        """The numbers of each image by name, as `to_dict` has them, but with NaN and infinity."""
        columns: dict[str, list[Any]] = {"target": self._targets(), "label": self.labels}
        columns["score_kind"] = [self.options.get("score")] * len(self)
        for name in (*_NUMBERS, "finite"):
            values = getattr(self, name)
            columns[name] = [None] * len(self) if values is None else values.tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _targets(self) -> list[Any]:
        """What was explained in each image."""
        found = self.target.tolist() if isinstance(self.target, Tensor) else self.target
        many = isinstance(found, list)
        return [found[0 if len(found) == 1 else i] if many else found for i in range(len(self))]

    def _stored(self) -> dict[str, Any]:
        return vars(self) | {"moments": None} | ({} if self.source is None else self.source.store(self._targets()))

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


def _like(maps: Maps, parts: list[Tensor]) -> Any:
    """A tuple where the maps are one."""
    return tuple(parts) if isinstance(maps, tuple) else parts[0]


def _share(flags: list[Tensor]) -> PerImage:
    rows = torch.cat([flag.flatten(1) for flag in flags], 1)
    return rows.count_nonzero(1) / rows.shape[1]


def _join_targets(parts: Sequence[Explanation]) -> Target:
    if all(isinstance(each.target, Tensor) for each in parts):
        return torch.cat([each.target.reshape(-1).expand(len(each)) for each in parts])
    same = not any(isinstance(each.target, Tensor | list) or each.target != parts[0].target for each in parts)
    return parts[0].target if same else [target for each in parts for target in each._targets()]


def _plain(value: Any) -> Any:
    """As strict JSON has it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _name_method(result: Explanation) -> str:
    """The method, and the preset that it took."""
    preset = result.options.get("preset")
    return result.method if preset is None else f"{result.method} (preset {preset})"


def _heading(result: Explanation) -> str:
    shapes = " and ".join(str(tuple(part.shape[1:])) for part in _parts(result.map))
    by = f" by {_name_method(result)}" if result.method else ""
    cost = ""
    if result.gradients is not None and len(result):
        least, most = int(result.gradients.min()), int(result.gradients.max())
        cost = f", {most if least == most else f'{least} to {most}'} gradient{'s' * (most != 1)} each"
    seed = "" if result.seed is None else f", seed {result.seed}"
    return f"Explanation{by}: {len(result)} x {shapes}{cost}{seed}"
