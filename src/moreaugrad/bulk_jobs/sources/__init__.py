"""Where the images of a bulk run come from: `open_source` understands folders, tables, shards and datasets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from moreaugrad.bulk_jobs.sources.files import open_files
from moreaugrad.bulk_jobs.sources.hugging_face import is_saved, open_dataset, open_saved, refuse_splits
from moreaugrad.bulk_jobs.sources.listing import BulkSource, Item
from moreaugrad.bulk_jobs.sources.manifest import open_manifest
from moreaugrad.bulk_jobs.sources.objects import open_arrays, open_factory, open_object
from moreaugrad.bulk_jobs.sources.shards import open_shards
from moreaugrad.data.sources import as_path

__all__ = ["BulkSource", "Item", "open_source"]

TABLES = (".csv", ".parquet")
ARRAYS = ".npz"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_FACTORY = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d][\w.]*")


def open_source(source: Any, skip: Path | None = None) -> BulkSource:
    """Open the images of a data set. None of them is read here.

    Args:
        source: a folder, file or glob pattern, or a list of these; a .csv or .parquet manifest; a dataset of Hugging
            Face, saved to disk or as an object; tar shards of WebDataset; an .npz file of CIFAR-10; a dataset with
            `__len__` and `__getitem__`; the text "package.module:factory", which names a function that makes one of
            these; or a `BulkSource`, which is returned as it is.
        skip: the output folder, from which no images are taken.

    Returns:
        The source: its keys, and one image at a time.

    Raises:
        ValueError: there is nothing, or nothing that can be read.
        TypeError: the object is no dataset.

    Example:
        >>> source = open_source([photo])
        >>> source.keys, source.read(0).image.name
        (['photo.jpg'], 'photo.jpg')
    """
    if isinstance(source, BulkSource):
        return source
    if isinstance(source, str | Path):
        return _open_named(source, skip)
    if isinstance(source, list | tuple) and all(isinstance(each, str | Path) for each in source):
        return _open_several(source, skip)
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(source).__mro__}  # without an import of `datasets`
    if "datasets.dataset_dict.DatasetDict" in kinds:
        refuse_splits(list(source), f"a {type(source).__name__}")
    return open_dataset(source) if "datasets.arrow_dataset.Dataset" in kinds else open_object(source)


def _open_several(sources: Sequence[str | Path], skip: Path | None) -> BulkSource:
    if not sources:
        raise ValueError("a source must name at least one image, got an empty list; name a folder, or files")
    if len(sources) == 1:
        return _open_named(sources[0], skip)
    shards = [str(each).lower().endswith(".tar") for each in sources]
    if all(shards):
        return open_shards(sources)
    for each, shard in zip(sources, shards, strict=True):
        _refuse_packed(str(each))
        if shard or str(each).lower().endswith((*TABLES, ARRAYS)) or is_saved(Path(each)):
            raise ValueError(
                f"several sources must all be images, folders and patterns, got {str(each)!r} among them; name it alone"
            )
    return open_files(sources, skip)


def _open_named(source: str | Path, skip: Path | None) -> BulkSource:
    name, path = str(source), as_path(source)
    if names_code(name):
        return open_factory(name, partial(open_source, skip=skip))
    if path.is_dir():
        return _open_folder(path, skip)
    _refuse_packed(name)
    ending = path.suffix.lower()
    if ending in TABLES:
        return open_manifest(path)
    if ending == ARRAYS:
        return open_arrays(path)
    return open_shards([source]) if ending == ".tar" else open_files([source], skip)


def _open_folder(folder: Path, skip: Path | None) -> BulkSource:
    if is_saved(folder):
        return open_saved(folder)
    inside = sorted(each for each in folder.iterdir() if each.name[0] != ".")
    if inside and all(each.suffix.lower() == ".tar" and each.is_file() for each in inside):
        return open_shards(inside)
    return open_files([folder], skip)


def names_code(source: str) -> bool:
    """Whether a source is a function of a module rather than a file."""
    return _FACTORY.fullmatch(source) is not None and not Path(source).exists()


def _refuse_packed(name: str) -> None:
    if name.lower().endswith(PACKED):
        raise ValueError(
            f"shards must be uncompressed tar files, whose images can be read in any order, got {name!r}; unpack it to "
            "a .tar file or a folder"
        )
