"""Which files are meant, and what each is called. Opens none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

KINDS = "avif bmp gif jfif jp2 jpeg jpg pbm pgm png pnm ppm tga tif tiff webp"
SUFFIXES = frozenset(f".{kind}" for kind in KINDS.split())


def collect(paths: Iterable[str | Path], skip: str | Path | None = None) -> list[Path]:
    """Files as named, the images of folders (at any depth, sorted), the matches of patterns; each once.

    What is not there stays in the list, so that reading it reports it. Nothing in the folder `skip`
    is taken from a folder above it: results must not be explained in turn.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        matches = sorted(map(Path, glob(str(path), recursive=True))) if _pattern(path) else []  # noqa: PTH207
        for match in matches or [path]:
            found |= dict.fromkeys(_files(match, skip))
    return list(found)


def keys(paths: Sequence[Path]) -> list[str]:
    """A name of its own for each file: the stem, or folder_stem_suffix, or that with a number."""
    shared = Counter(path.stem.casefold() for path in paths)  # casefold: disks may not tell A.png from a.png
    found: list[str] = []
    taken: set[str] = set()
    for path in paths:
        stem = path.stem or "image"
        long = "_".join(filter(None, (path.resolve().parent.name, stem, path.suffix.lstrip("."))))
        wanted = stem if shared[path.stem.casefold()] == 1 else long
        key, number = wanted, 1
        while key.casefold() in taken:
            number += 1
            key = f"{wanted}_{number}"
        taken.add(key.casefold())
        found.append(key)
    return found


def _pattern(path: Path) -> bool:
    return has_magic(str(path)) and not path.exists()  # a file may be called photo[1].jpg


def _files(path: Path, skip: str | Path | None) -> list[Path]:
    if not path.is_dir():
        return [path]
    away = None if skip is None else Path(skip).resolve()
    inside = sorted(file for file in path.rglob("*") if _image(file.relative_to(path)) and file.is_file())
    if away is not None and away != path.resolve():
        inside = [file for file in inside if away not in file.resolve().parents]
    return inside or [path]


def _image(file: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.parts)
    return file.suffix.lower() in SUFFIXES and not hidden
