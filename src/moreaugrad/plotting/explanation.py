"""The maps of one explained item as a figure: each input by its kind, with the input itself where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from moreaugrad import validate
from moreaugrad.data.images import read_image
from moreaugrad.plotting import series
from moreaugrad.plotting.film import make_film
from moreaugrad.plotting.pictures import (
    Array,
    Panel,
    Picture,
    ScaledMap,
    compose,
    grid,
    make_panel,
    overlay,
    read_photo,
    scale_map,
    sum_and_scale,
    to_array,
)
from moreaugrad.plotting.whole import make_whole_panel
from moreaugrad.source import InputSource, Region, describe_channels

KINDS = {  # by name: the number of axes of one map, without that of the batch
    "image": (3,),
    "film": (4,),
    "signal": (1, 2),
    "tokens": (1, 2),
    "row": (1, 2, 3, 4, 5),
}
MOST_TILES = 8  # of a batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing:
    """How the maps of one item are to be drawn; the options of `Explanation.show`."""

    image: Any = None
    signed: bool = False
    whole: bool = False
    names: Sequence[Any] | None = None
    kind: str | Sequence[str | None] | None = None

    def draw(self, maps: Sequence[Tensor], source: InputSource | None, title: str) -> Picture:
        """Maps (1, ...), one per input of the network, one below the other."""
        count = len(maps)
        names, kinds = (_share(name, getattr(self, name), count) for name in ("names", "kind"))
        every = [choose_kind(map[0], *each) for map, *each in zip(maps, names, kinds, strict=True)]
        if "image" not in every and (self.image is not None or self.whole):
            option = "whole" if self.image is None else "image"
            raise ValueError(f"{option} needs a map of pixels, (N, C, H, W), got {tuple(maps[0].shape)}; leave it out")
        panels = []
        for i, (kind, words) in enumerate(zip(every, names, strict=True)):
            known = source if source is not None and _fits(source.inputs[i], maps[i]) else None
            if words is not None and kind not in ("row", "tokens"):
                raise ValueError(f"names belong to the columns of a row or to tokens, got some for one drawn as {kind}")
            if kind == "image":
                image = self.image if i == every.index("image") else None
                panels.append(self._make_image(maps[i][0], known, i, image))
            else:
                panels.append(_make_panel(kind, maps[i][0], known, i, words, self.signed))
        return compose(panels, title)

    def _make_image(self, map: Tensor, source: InputSource | None, part: int, image: Any) -> Panel:
        drawn = scale_map(map, self.signed)
        original: Image.Image | None = None
        region: Region | None = None
        shown: Array | None = None
        name = "input"
        if image is not None:
            shown, original, region = _read_given(image, drawn, source)
        elif source is not None:
            shown = source.picture(part, 0)
            note = "" if source.photos else describe_channels(source.inputs[part].shape[1])
            name = f"input: {note}" if note else "input"
            if self.whole:
                original, region = _read_original(source)
        if not self.whole:
            return make_panel(drawn, shown, name)
        if original is None or region is None:
            raise ValueError(
                "whole=True needs the photo, and the part of it that the model saw, got an explanation that does not "
                "know them; explain the file with mg.explain(model, 'photo.jpg') and the model's own preprocessing"
            )
        return make_whole_panel(drawn, original, region)


def draw_batch(maps: Tensor, source: InputSource | None, names: Sequence[str], title: str) -> Picture:
    """The first images of a batch (N, C, H, W), each under its name: overlays; maps where images are not known."""
    tiles: list[tuple[str, Any]] = [(name, maps[i]) for i, name in enumerate(names)]
    if source is not None and _fits(source.inputs[0], maps):
        tiles = [(name, overlay(source.picture(0, i), scale_map(map))) for i, (name, map) in enumerate(tiles)]
    return grid(tiles, title=title)


def choose_kind(map: Tensor, names: Sequence[str] | None, asked: str | None) -> str:
    """What a map (without its batch axis) is drawn as: what was asked for, or what its shape suggests."""
    if asked is not None:
        validate.one_of("kind", asked, dict.fromkeys(KINDS))
        if map.ndim not in KINDS[asked]:
            raise ValueError(f"a map of shape {tuple(map.shape)} cannot be drawn as {asked}; leave kind out")
        return asked
    if map.ndim == 2:
        return "signal" if names is None and len(map) <= 2 else "tokens" if names is not None else "row"
    return {3: "image", 4: "film"}.get(map.ndim, "row")


def _make_panel(
    kind: str, map: Tensor, source: InputSource | None, part: int, words: Sequence[str] | None, signed: bool
) -> Panel:
    found = to_array(map.reshape(1) if map.ndim == 0 else map)
    if kind == "film":
        drawn = sum_and_scale(found, (0,), signed)
        return make_film(drawn, None if source is None else source.picture(part, 0))
    values = None
    if source is not None and source.inputs[part][0].shape == map.shape:
        values = to_array(source.inputs[part][0])
    if kind == "signal":
        found = found.reshape(-1, found.shape[-1])
        drawn = sum_and_scale(found, (0,), signed)
        return series.make_signal(drawn, None if values is None else values.reshape(found.shape))
    drawn = sum_and_scale(found, tuple(range(1, found.ndim)), signed)
    if words is None:
        return series.make_steps(drawn)
    _check_names(words, drawn)
    if kind == "tokens":
        return series.make_tokens(drawn, words)
    return series.make_bars(drawn, words, values if values is not None and values.ndim == 1 else None)


def _check_names(words: Sequence[str], drawn: ScaledMap) -> None:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"names must be a list of text, one for each position, got {words!r:.80}")
    if len(words) != drawn.values.size:
        raise ValueError(f"names must be one for each position, {drawn.values.size}, got {len(words)}")


def _share(name: str, value: Any, count: int) -> Sequence[Any]:
    """An option for each input; where there are several, a list with one entry per input, or nothing."""
    if count == 1:
        return [value]
    if value is None:
        return [None] * count
    if isinstance(value, str) or len(value) != count:
        raise ValueError(
            f"{name} must be a list with one entry (or None) for each of {count} inputs, got {value!r:.80}"
        )
    return list(value)


def _fits(inputs: Tensor, map: Tensor) -> bool:
    """Whether a map lies on its inputs, but for the channels: a map may have one, a stored picture has three."""
    if map.ndim >= 4:
        return inputs.shape[2:] == map.shape[2:]
    return inputs.shape == map.shape


def _read_original(source: InputSource) -> tuple[Image.Image | None, Region | None]:
    photo = source.photos[0] if source.photos else None
    if photo is None or photo.read is None or photo.region is None:
        return None, None
    original = photo.read()
    if original.size != photo.size:
        raise ValueError(f"{photo.file} must be the photo that was explained, {photo.size}, got one of {original.size}")
    return original, photo.region


def _read_given(
    image: Any, drawn: ScaledMap, source: InputSource | None
) -> tuple[Array, Image.Image | None, Region | None]:
    """A picture as the model saw it; or an original, cut as the model cuts it, with the part that it saw."""
    if not isinstance(image, str | Path | Image.Image):
        return read_photo(image), None, None
    photo = read_image(image)
    size = drawn.shape[1], drawn.shape[0]
    if isinstance(image, Image.Image) and photo.size == size:
        return read_photo(photo), None, None
    view = None if source is None else source.view
    if view is not None:
        return read_photo(view.apply(photo)[1]), photo, view.region(photo.size)
    known = source.photos[0] if source is not None and source.photos else None
    if known is not None and known.size == photo.size and known.region is not None:
        cut = photo.transform(size, Image.Transform.EXTENT, known.region, Image.Resampling.BICUBIC)
        return read_photo(cut), photo, known.region
    if photo.size != size:
        raise ValueError(
            f"image must be the picture as the model saw it, {size[0]} x {size[1]} pixels, got {photo.width} x "
            f"{photo.height}; cut it, model.crop(picture), or explain the file: mg.explain(model, 'photo.jpg')"
        )
    return read_photo(photo), None, None
