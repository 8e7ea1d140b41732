"""Images in files: of folders, of patterns, or named one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moreaugrad.bulk_jobs.sources.listing import Item, Listing, as_text, digest, file_sizes
from moreaugrad.data.sources import STDIN, STILL_KINDS, find_fault, find_images


@dataclass(eq=False, kw_only=True)
class FileSource(Listing):
    """Image files below one folder, `path`; a key is the name of a file relative to it.

    Args:
        names: the files relative to the folder; as the keys, but for bytes that are no text.
    """

    names: Sequence[str]

    def read(self, row: int) -> Item:
        return Item(Path(str(self.path), self.names[row]))


def open_files(sources: Sequence[str | Path], skip: Path | None = None) -> FileSource:
    """The images of folders and patterns, and files as named, without those in the folder `skip`.

    Args:
        sources: folders, patterns and files; one folder is the root of the keys, several sources have their common
            parent as root.
        skip: a folder from which no images are taken.

    Raises:
        ValueError: a folder or pattern without images, or a file that is not there.
    """
    if STDIN in map(Path, sources):
        raise ValueError("a source must be files, which can be read again, got standard input; save it to a file first")
    found = map(_absolute, find_images(sources, skip))
    files = list(dict.fromkeys(found))  # a file may be named both ways, relative and absolute
    only = _absolute(Path(sources[0]))
    root = only if len(sources) == 1 and only.is_dir() else common_parent(files)
    sizes = file_sizes(root, map(str, files))
    if None in sizes:
        raise ValueError(_explain_missing(files[sizes.index(None)]))
    names = [file.relative_to(root).as_posix() for file in files]
    keys = as_text(names)
    return FileSource(kind="files", path=str(root), keys=keys, names=names, digest=digest(keys, sizes))


def common_parent(files: Sequence[Path]) -> Path:
    """The deepest folder that holds all of some absolute paths."""
    return Path(os.path.commonpath({file.parent for file in files}))


def _absolute(path: Path) -> Path:
    """Without "..", so that all files are below their common parent; what follows it keeps its names."""
    parts = path.absolute().parts
    if ".." not in parts:
        return path.absolute()
    rest = len(parts) - parts[::-1].index("..")
    return Path(*parts[:rest]).resolve().joinpath(*parts[rest:])


def _explain_missing(path: Path) -> str:
    if path.is_dir():
        return (
            f"a folder must hold images ({STILL_KINDS}, ...; at any depth), or be a data set saved by Hugging Face or "
            f"tar shards alone, got {str(path)!r} without any; name another folder"
        )
    return find_fault(path) or f"{str(path)!r} must be an image file, got none; check the path"
