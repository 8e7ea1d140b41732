"""From pictures to explanations: `mg.explain`, and the `Explainer` that it shares with the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, overload

import torch
from PIL import Image
from torch import Tensor

from moreaugrad import validate
from moreaugrad.data.frames import list_sources
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import STDIN
from moreaugrad.methods.base import Method
from moreaugrad.methods.options import make_method, with_default_preset
from moreaugrad.model.devices import Device, device_of
from moreaugrad.model.inputs import read_output
from moreaugrad.model.prepared import Prepared
from moreaugrad.models.classes import (
    Contrast,
    Ranked,
    Wanted,
    check_top,
    choose_classes,
    find_class,
    number_targets,
    one_each,
)
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.custom import Labels, Model, as_classifier, open_model
from moreaugrad.results import Explanation
from moreaugrad.source import Photo
from moreaugrad.types import Images, Target, Watch, ignore_progress

Preprocess = Callable[[Image.Image], Tensor]
NamedTarget = Target | str | list[str]


@overload
def explain(
    model: Model, image: Any, method: str = ..., *, eta: Sequence[float], **options: Any
) -> list[Explanation]: ...
@overload
def explain(
    model: Model, image: Any, method: str = ..., *, sparsity: Sequence[float], **options: Any
) -> list[Explanation]: ...
@overload
def explain(model: Model, image: Any, method: str = ..., *, top: int, **options: Any) -> list[Explanation]: ...
@overload
def explain(
    model: Model,
    image: Any,
    method: str = ...,
    *,
    target: NamedTarget = ...,
    top: None = ...,
    against: int | str | None = ...,
    weights: str | Path | None = ...,
    labels: Labels | None = ...,
    device: Device = ...,
    preprocess: Preprocess | None = ...,
    frames: bool = ...,
    show_progress: bool | None = ...,
    eta: float | None = ...,
    sparsity: float | None = ...,
    **options: Any,
) -> Explanation: ...
def explain(  # noqa: PLR0913
    model: Model,
    image: Any,
    method: str = "sparse_moreau",
    *,
    target: NamedTarget = None,
    top: int | None = None,
    against: int | str | None = None,
    weights: str | Path | None = None,
    labels: Labels | None = None,
    device: Device = None,
    preprocess: Preprocess | None = None,
    frames: bool = False,
    show_progress: bool | None = None,
    **options: Any,
) -> Explanation | list[Explanation]:
    """Explain what a classifier sees in one image, or in many: the shortest way from a photo to a map.

    To explain many batches with one model, make the method once, `mg.SparseMoreauGrad(net)`, and call its `explain`.

    Args:
        model: a name for `load_model`, a module in evaluation mode, or any callable that returns scores (N, classes).
        image: a file, a folder or a pattern such as "photos/*.jpg", a PIL image, an array (H, W, 3), or a list of
            these; or a tensor (C, H, W) or (N, C, H, W) that is preprocessed already.
        method: a key of `METHODS`.
        target: the class to explain, by number or name, one for all images or a list with one each; None explains the
            predicted class of each.
        top: explain this many classes of each image, those with the highest scores, instead of a target.
        against: a second class, by number or name, whose score is subtracted: what speaks for the target rather than
            for this one.
        weights: of a model that is loaded by name: a checkpoint file, or "random".
        labels: names of the classes, or a file with them, as in `load_model`.
        device: where a model that is loaded by name runs; None takes a GPU if there is one. A module stays where it is.
        preprocess: a function from a PIL image to a tensor (C, H, W); None takes the model's own, else ImageNet's.
        frames: explain every frame of animations, documents of several pages and videos, instead of the first.
        show_progress: draw a progress bar; None: where somebody watches, after two seconds.
        eta: weight of the prior, for methods with one; a list gives one Explanation per value.
        sparsity: share of the map to keep, in (0, 1], instead of `eta`; a list gives one Explanation per value.
        options: options of the method, and `noise_level`, `sigma`, `samples` of its smoothing. The MoreauGrad family
            takes a default preset where no `preset` is given, and the result says which; None: none.

    Returns:
        The Explanation of the batch; a list of them, one per value where `eta` or `sparsity` is a list, and one per
        rank where `top` is given.

    Raises:
        ValueError: if an image cannot be read, images differ in size after `preprocess`, or an option is wrong.
        UnknownNameError: for an unknown model, method or option; it names the nearest one.

    Example:
        >>> found = mg.explain(net, x, "gradient", target=3)
        >>> found.map.shape
        torch.Size([2, 3, 16, 16])
        >>> found = mg.explain(net, photo, sparsity=0.05, budget=16)
        >>> round(float(found.kept), 2)
        0.05
    """
    check_top(top, target, options)
    network, names = open_model(model, weights, labels, device)
    photos: tuple[Photo, ...] = ()
    if against is not None:
        options["score"] = Contrast(find_class(against, names, "against"), options.get("score", "logit"))
    if isinstance(network, Prepared) and not isinstance(image, Tensor):  # the network itself knows its preprocessing
        options = {"precision": network.precision, "compile": network.compile} | options
        network = network.forward
    if isinstance(image, Tensor):
        made = make_method(method, network, with_default_preset(method, options))
        x = image[None] if image.ndim == 3 else image
    else:
        explainer = Explainer(
            as_classifier(network, preprocess, labels=None if labels is None else names), method, options
        )
        made, network = explainer.method, explainer.classifier
        read = [explainer.read(each) for each in list_sources(image, frames)]
        x, photos = _stack([each for each, _ in read]), tuple(photo for _, photo in read)
    place = device_of(network, device)
    x = x if place is None else x.to(place)
    wanted = [number_targets(target, names)] if top is None else [[Ranked(i + 1)] * len(x) for i in range(top)]
    if top is not None or against is not None:
        wanted = [_choose(made, x, one_each(each, len(x))) for each in wanted]
    found = [found for each in wanted for found in made.explain_path(x, each, show_progress=show_progress)]
    found = [with_photos(each, photos, names) for each in found]
    return found if made.several is not None or top is not None else found[0]


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one image: an explanation, or an error."""

    key: str  # the name of the image
    explanation: Explanation | None = None  # of this one image, on the CPU
    error: str | None = None  # what went wrong, in one line
    against: str | None = None  # the class that it was contrasted with
    seconds: float = 0.0  # shared equally among the images of a batch
    lengths: dict[str, float] = field(default_factory=dict)  # noise and displacement, also in 8-bit pixel values

    @property
    def target(self) -> int | None:
        """The class that was explained; None for a model with one output."""
        target = None if self.explanation is None else self.explanation.target
        return int(target[0]) if isinstance(target, Tensor) else None

    @property
    def label(self) -> str | None:
        """The name of that class, where classes have names."""
        return None if self.explanation is None else self.explanation.labels[0]

    @property
    def picture(self) -> Image.Image | None:
        """What the network saw: 8-bit RGB, of the size of the map."""
        source = None if self.explanation is None else self.explanation.source
        return source.photos[0].crop if source is not None and source.photos else None


@dataclass(frozen=True, slots=True)
class ReadImage:
    """An image as the network takes it."""

    key: str  # its name
    x: Tensor  # (C, H, W), on the CPU
    photo: Photo  # that it is part of
    target: Wanted = None
    seed: int | None = None  # of its noise; None: the method's


@dataclass(frozen=True, eq=False)
class Explainer:
    """A classifier and one method: files or pictures in, a Record each out. Wrong options raise at once.

    Args:
        classifier: the model with its preprocessing; its device is used.
        name: a key of `METHODS`.
        options: flat options of the method, as for `make_method`; a method that has presets takes `DEFAULT_PRESET`
            where no `preset` is given.
    """

    classifier: Classifier
    name: str = "sparse_moreau"
    options: Mapping[str, Any] = field(default_factory=dict)
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        options = with_default_preset(self.name, self.options)
        object.__setattr__(self, "method", make_method(self.name, self.classifier, options))

    def read(self, source: Any) -> tuple[Tensor, Photo]:
        """A path, a PIL image or an array: the tensor (C, H, W) that the network sees, on the CPU, and its photo."""
        if isinstance(source, str | Path) and Path(source) == STDIN:
            source = read_image(source)  # it can be read only once
        original = read_image(source)
        x, crop = self.classifier.preprocess_and_crop(original)
        region = self.classifier.view.region(original.size)
        file = Path(source).resolve() if isinstance(source, str | Path) else None
        read = partial(read_image, source if file is None else file)
        return x, Photo(size=original.size, region=region, crop=crop, read=read, file=file)

    def __call__(
        self,
        sources: Sequence[tuple[str, Any]],
        target: Wanted | Sequence[Wanted] = None,
        watch: Watch = ignore_progress,
    ) -> list[Record]:
        """One record per (key, source), in their order; a bad image does not stop the others.

        `target`: for all images, or one each; None is the predicted class, Ranked(2) the one that comes next.
        """
        targets = target if isinstance(target, Sequence) else [target] * len(sources)
        return self.explain_inputs(
            [self.try_reading(*each, target=of) for each, of in zip(sources, targets, strict=True)], watch
        )

    def try_reading(self, key: str, source: Any, target: Wanted = None, seed: int | None = None) -> ReadImage | Record:
        """An image ready to be explained, or the record of what is wrong with it."""
        try:
            return ReadImage(key, *self.read(source), target, seed)
        except Exception as error:
            return Record(key, error=describe_error(error))

    def explain_inputs(self, images: Sequence[ReadImage | Record], watch: Watch = ignore_progress) -> list[Record]:
        """The record of each image. Those of one size are explained together; a bad one does not stop the others."""
        if self.method.several is not None:
            raise ValueError("a record holds one map per image, got a list of eta or sparsity; give one value")
        found: dict[int, Record] = {}
        groups: dict[Any, dict[int, ReadImage]] = {}
        for place, image in enumerate(images):
            if isinstance(image, Record):
                found[place] = image
            else:
                alone = place if image.seed is not None and not self.method.seeded_by_image else None
                groups.setdefault((image.x.shape, image.target is None, alone), {})[place] = image
        for rows in groups.values():
            found |= zip(rows, self._explain_together(list(rows.values()), watch), strict=True)
        return [found[place] for place in range(len(images))]

    def _explain_together(self, images: Sequence[ReadImage], watch: Watch) -> list[Record]:
        """Records of images of one size; after an error of smaller batches, to find out which image caused it."""
        began, seeds = perf_counter(), [image.seed for image in images if image.seed is not None]
        try:
            x = _stack([image.x for image in images]).to(self.classifier.device)
            targets = _choose(self.method, x, [image.target for image in images])
            whole = self.method.explain(x, targets, callback=watch, seeds=seeds or None, statistics=False)
            whole = with_photos(whole.cpu(), tuple(image.photo for image in images))
        except Exception as error:
            if len(images) == 1:
                return [Record(images[0].key, error=describe_error(error))]
            size = len(images) // 2 if isinstance(error, MemoryError | torch.OutOfMemoryError) else 1
            pieces = [images[start : start + size] for start in range(0, len(images), size)]
            return [record for piece in pieces for record in self._explain_together(piece, watch)]
        seconds = (perf_counter() - began) / len(images)
        return [self._record(image, whole[i], seconds) for i, image in enumerate(images)]

    def _record(self, image: ReadImage, one: Explanation, seconds: float) -> Record:
        x, one = image.x[None], replace(one, seed=image.seed) if image.seed is not None and self.method.random else one
        pixel = 255 * self.classifier.std.cpu()
        lengths: dict[str, float] = {}
        if self.method.noise is not None:
            sigma = float(self.method.noise.scale(x).max())
            lengths |= {"sigma": sigma, "sigma_8bit": sigma * float(pixel.mean())}
        if isinstance(one.delta, Tensor):
            delta = one.delta[0]
            lengths |= {"delta_norm": float(delta.norm()), "delta_norm_8bit": float((delta * pixel).norm())}
        score = self.method.score
        against = None
        if isinstance(score, Contrast):
            against = self.classifier.label(score.against) or f"class {score.against}"
        return Record(image.key, one, against=against, seconds=seconds, lengths=lengths)


def with_photos(found: Explanation, photos: tuple[Photo, ...], names: Sequence[str] | None = None) -> Explanation:
    """An explanation that knows the photos its inputs were made from, and the names of the classes."""
    if found.source is None:
        return found
    labels = found.source.labels if names is None else names
    return replace(found, source=replace(found.source, photos=photos, labels=labels))


def _choose(method: Method, x: Images, wanted: Sequence[Wanted]) -> list[int] | None:
    """A class for each image, ranked by what the network of a method returns."""

    def outputs(rows: Images) -> Tensor:
        return read_output(method.forward_func(rows.clone()), len(rows), method.output)

    against = method.score.against if isinstance(method.score, Contrast) else None
    validate.evaluating(method.forward_func)
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        return choose_classes(outputs, x, wanted, against)


def describe_error(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | TypeError | OSError) else f"{type(error).__name__}: {text}"


def _stack(rows: Sequence[Tensor]) -> Tensor:
    if not rows:
        raise ValueError("image must be an image or a list of at least one, got an empty list")
    if len({row.shape for row in rows}) > 1:
        raise ValueError(
            f"the images of a list must have one size after preprocess, got {sorted({tuple(r.shape) for r in rows})}; "
            "explain them one by one"
        )
    return torch.stack(list(rows))
