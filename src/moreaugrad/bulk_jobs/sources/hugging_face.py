"""Data sets of Hugging Face: saved to disk, or as objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moreaugrad.bulk_jobs.sources.listing import Item, Listing, digest, numbers, open_encoded

KEYS = ("key", "id", "image_id", "filename", "file_name")
KEY_TYPES = ("string", "large_string", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(eq=False, kw_only=True)
class HuggingFaceSource(Listing):
    """The images of a `datasets.Dataset`.

    Args:
        truths: the class of each image, None where it is not known.
        dataset: the images alone, not decoded; None where each process loads them from `path`.
    """

    truths: Sequence[int | None]
    dataset: Any = None

    def read(self, row: int) -> Item:
        if self._opened is None:
            self._opened = _images(_load(Path(str(self.path)))) if self.dataset is None else self.dataset
        ((_, cell),) = self._opened[row].items()
        name = f"row {row} of {self.path or 'the dataset'!r}"
        if cell and cell["bytes"] is None and cell["path"]:
            return Item(cell["path"], truth=self.truths[row])
        return Item(open_encoded(cell["bytes"] if cell else None, name), truth=self.truths[row])


def is_saved(folder: Path) -> bool:
    """Whether `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


def open_saved(folder: Path) -> HuggingFaceSource:
    """Open a folder that `Dataset.save_to_disk` wrote.

    Raises:
        ValueError: it holds several splits, or no images; or `datasets` is not installed.
    """
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        refuse_splits(json.loads(splits.read_text())["splits"], f"the folder {str(folder)!r}")
    return _open(_load(folder), folder.absolute())


def open_dataset(dataset: Any) -> HuggingFaceSource:
    """Open a `datasets.Dataset`; formats and transforms are left out.

    Its keys are a column of unique names, or the numbers of the rows. Its digest holds the fingerprint that `datasets`
    keeps of the content and of all transformations.
    """
    return _open(dataset.with_format(None), None)


def refuse_splits(splits: Sequence[str], what: str) -> None:
    raise ValueError(f"a source must be one split of a dataset, got {what} with {list(splits)}; name one of them")


def _load(folder: Path) -> Any:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ValueError(
            f"to read {str(folder)!r}, a dataset of Hugging Face, the package datasets must be installed, got none; "
            "pip install datasets"
        ) from error
    try:
        return load_from_disk(str(folder)).with_format(None)
    except Exception as error:
        raise ValueError(
            f"{str(folder)!r} must be a whole dataset as save_to_disk writes it, got {type(error).__name__}: {error}; "
            "save it again"
        ) from error


def _open(dataset: Any, folder: Path | None) -> HuggingFaceSource:
    images = _images(dataset)
    keys, truths = _find_keys(dataset), _find_truths(dataset)
    found = HuggingFaceSource(
        kind="huggingface",
        path=None if folder is None else str(folder),
        keys=keys,
        digest=digest(keys, truths, [dataset._fingerprint]),
        truths=truths,
        dataset=images if folder is None else None,
    )
    found._opened = images
    return found


def _images(dataset: Any) -> Any:
    """The column of images alone, as bytes or paths: decoding is left to `read_image`."""
    from datasets import Image

    columns = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
    if len(columns) != 1 and "image" not in columns:
        raise ValueError(
            f"a dataset must have one column of images, or one called image, got {columns} among "
            f"{list(dataset.features)}; use cast_column(name, datasets.Image()) or remove_columns"
        )
    column = "image" if "image" in columns else columns[0]
    return dataset.select_columns([column]).cast_column(column, Image(decode=False))


def _find_keys(dataset: Any) -> list[str]:
    for name in KEYS:
        values = dataset[name][:] if getattr(dataset.features.get(name), "dtype", "") in KEY_TYPES else []
        if values and None not in values and len(set(values)) == len(values):
            return list(map(str, values))
    return numbers(len(dataset))


def _find_truths(dataset: Any) -> list[int | None]:
    """Of "label", or of the only column of classes; a negative number stands for a class that is not known."""
    from datasets import ClassLabel

    labels = [name for name, feature in dataset.features.items() if isinstance(feature, ClassLabel)]
    if "label" in labels or len(labels) == 1:
        column = "label" if "label" in labels else labels[0]
        return [None if label is None or label < 0 else int(label) for label in dataset[column][:]]
    return [None] * len(dataset)
