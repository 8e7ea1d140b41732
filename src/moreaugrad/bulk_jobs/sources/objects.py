"""Images from Python: arrays of CIFAR-10, any dataset with a length and items, and factories that make one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from moreaugrad.bulk_jobs.sources.listing import BulkSource, Item, Listing, as_class, digest, numbers
from moreaugrad.registry import call_named

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(eq=False, kw_only=True)
class ArraySource(Listing):
    """The test images of an .npz file as `read_cifar10` reads it; each process reads the file once."""

    def read(self, row: int) -> Item:
        if self._opened is None:
            self._opened = _test_half(Path(str(self.path)))
        images, labels = self._opened
        return Item(images[row], truth=int(labels[row]))


def open_arrays(path: Path) -> ArraySource:
    """The test images of an .npz file; the digest is that of the file.

    Raises:
        ValueError: the file is not there, or lacks arrays.
    """
    images, labels = opened = _test_half(path)
    with path.open("rb") as handle:
        content = file_digest(handle, blake2b).hexdigest()
    found = ArraySource(
        kind="arrays", path=str(path.absolute()), keys=numbers(len(images)), digest=digest(labels.tolist(), [content])
    )
    found._opened = opened
    return found


def _test_half(path: Path) -> tuple[Any, Any]:
    from moreaugrad.data.arrays import read_cifar10

    arrays = read_cifar10(path)
    return arrays.x_test, arrays.y_test


@dataclass(eq=False, kw_only=True)
class ObjectSource(Listing):
    """The items of any dataset with `__len__` and `__getitem__`, such as those of torchvision.

    An item is an image (PIL, array or path), a tuple (image, label, ...), or a dict with "image" or "img" and, where
    known, "target" and "truth" or "label". A label that is neither a number nor a name is left out.

    Args:
        dataset: the object; it must be picklable where several processes work.
    """

    dataset: Any

    def read(self, row: int) -> Item:
        found = self.dataset[row]
        if isinstance(found, Mapping):
            return _read_mapping(found)
        if isinstance(found, tuple | list):
            return Item(_check_image(found[0]), truth=_as_label(found[1]) if len(found) > 1 else None)
        return Item(_check_image(found))


def open_object(dataset: Any) -> ObjectSource:
    """Open a map-style dataset.

    Its digest knows the length, the class and what the object says of itself (its `repr`). Its images are not checked.

    Raises:
        TypeError: the object has no length or no items.
    """
    kind = type(dataset)
    name = f"{kind.__module__}.{kind.__qualname__}"
    streamed = any(each.__name__ == "IterableDataset" for each in kind.__mro__)
    if streamed or isinstance(dataset, Mapping) or not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")):
        raise TypeError(
            "a source must be a folder, a pattern, a manifest, tar shards, or a dataset whose items have numbers "
            f"(__len__ and __getitem__), got {name}; save a stream of images to files or shards first"
        )
    try:
        keys = numbers(len(dataset))
    except (TypeError, NotImplementedError) as error:
        raise TypeError(
            f"a dataset must know its length, got {name}, which does not: {error}; give it __len__"
        ) from error
    says = "" if isinstance(dataset, list | tuple) else _ADDRESS.sub("", repr(dataset))
    return ObjectSource(kind="dataset", path=None, keys=keys, digest=digest([len(keys), name, says]), dataset=dataset)


def _read_mapping(found: Mapping[Any, Any]) -> Item:
    image = next((found[name] for name in ("image", "img") if name in found), None)
    if image is None:
        way = "; return the image before the processor" if "pixel_values" in found else ""
        raise ValueError(f"an item of a dataset must have an image, as 'image' or 'img', got {list(found)}{way}")
    truth = next((found[name] for name in ("truth", "label") if name in found), None)
    return Item(_check_image(image), as_class(found.get("target")), _as_label(truth))


def _check_image(image: Any) -> Any:
    from torch import Tensor

    if isinstance(image, Tensor):
        raise TypeError(
            "an item of a dataset must be a PIL image, an array or a path, got a tensor, which is preprocessed "
            "already; drop the transform that makes it (ToTensor, Normalize): the model brings its own"
        )
    return image


def _as_label(label: Any) -> int | str | None:
    try:
        return as_class(label)
    except ValueError:  # boxes, masks, several labels
        return None


@dataclass(eq=False, kw_only=True)
class FactorySource(Listing):
    """What a function `package.module:factory` makes; each process calls it anew, so the result need not be picklable.

    Args:
        folder: where its module is looked for beside Python's own path.
        open_made: makes a source of what the function returns.
    """

    folder: Path
    open_made: Callable[[Any], BulkSource]

    def read(self, row: int) -> Item:
        if self._opened is None:
            self._opened = _make(str(self.path), self.folder, self.open_made)
        found: Item = self._opened.read(row)
        return found


def open_factory(name: str, open_made: Callable[[Any], BulkSource]) -> FactorySource:
    """Call the function `package.module:factory`, looked for in the current folder too.

    Args:
        name: the function, as module and name.
        open_made: makes a source of what it returns.

    Raises:
        ValueError: it cannot be imported or fails.
    """
    folder = Path.cwd()
    made = _make(name, folder, open_made)
    digest_made = made.describe()["digest"]
    found = FactorySource(
        kind="factory", path=name, keys=made.keys, digest=digest_made, folder=folder, open_made=open_made
    )
    found._opened = made
    return found


def _make(name: str, folder: Path, open_made: Callable[[Any], BulkSource]) -> BulkSource:
    try:
        made = call_named(name, folder)
    except Exception as error:
        raise ValueError(
            f"source {name!r} must name a function of an importable module that makes a dataset, got "
            f"{type(error).__name__}: {error}; modules are looked for in the current directory as well"
        ) from error
    return open_made(made)
