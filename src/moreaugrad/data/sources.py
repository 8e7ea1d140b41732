"""Finding pictures by name: files, folders, patterns, frames and standard input. Imports nothing heavy."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape, glob, has_magic
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path

log = logging.getLogger("moreaugrad")

STDIN = Path("-")
RESULTS = "results.jsonl"  # what a folder of results holds
STILL_KINDS = "avif bmp gif jfif jp2 jpeg jpg pbm pgm png pnm ppm tga tif tiff webp"
VIDEO_KINDS = "avi m4v mkv mov mp4 mpeg mpg ogv webm wmv"
STILL, VIDEO, HEIF = (
    frozenset(f".{kind}" for kind in kinds.split()) for kinds in (STILL_KINDS, VIDEO_KINDS, "heic heif hif")
)
_READERS = ((HEIF, "pillow_heif", "pillow-heif"), (VIDEO, "av", "av"))  # suffixes, module, what to install
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a file that holds several; named like a path, so that it can stand in a list of them."""

    path: Path
    index: int
    count: int  # of the file

    def __str__(self) -> str:
        return f"{self.path}, frame {self.index}"

    @property
    def stem(self) -> str:
        digits = max(3, len(str(self.count - 1)))
        return f"{self.path.stem}_frame{self.index:0{digits}}"

    @property
    def name(self) -> str:
        return f"{self.path.name}, frame {self.index}"

    @property
    def suffix(self) -> str:
        return self.path.suffix

    def resolve(self) -> Path:
        return self.path.resolve()


ImageSource = Path | Frame


def as_path(source: str | Path) -> Path:
    """The path that a text names; "-" is standard input. A URL is refused."""
    if isinstance(source, str) and _URL.match(source):
        raise ValueError(
            f"an image must be a file on this machine, got the URL {source!r}; nothing is downloaded: save the file "
            "first, and name that"
        )
    if not str(source):
        raise ValueError(
            "an image must be a file, a folder or a pattern, got an empty name; name one, '.' for this folder"
        )
    return Path(source)


def find_images(paths: Iterable[str | Path], skip: str | Path | None = None) -> list[Path]:
    """Files as named, the images of folders (at any depth, sorted), the matches of patterns; each once.

    What is not there stays in the list, so that reading it reports it. Nothing in the folder `skip`, or in another
    folder of results, is taken from a folder above it: results must not be explained in turn. Images of folders that
    need a package which is not installed are left out, and counted in one warning.
    """
    found: dict[Path, None] = {}
    unreadable: dict[Path, None] = {}
    for path in map(as_path, paths):
        pattern = has_magic(str(path)) and not _is_there(path)  # a file may be called photo[1].jpg
        matches = sorted(set(_find_matches(path))) if pattern else []
        for match in matches or [path]:
            inside = _images_in(match, skip) if _is_folder(match) else []
            unreadable |= dict.fromkeys(file for file in inside if missing_reader(file))
            found |= dict.fromkeys([file for file in inside if not missing_reader(file)] or [match])
    if unreadable:
        kinds = Counter(file.suffix.lower() for file in unreadable)
        needed = sorted({missing_reader(file) or "" for file in unreadable})
        log.warning(
            "%d file%s skipped (%s): to read %s, pip install %s",
            *(len(unreadable), "" if len(unreadable) == 1 else "s"),
            ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
            *("it" if len(unreadable) == 1 else "them", " ".join(needed)),
        )
    return list(found)


def unique_names(paths: Sequence[ImageSource]) -> list[str]:
    """A name of its own for each source: the stem, or folder_stem_suffix, or that with a number."""
    stems = [name_source(path) for path in paths]
    shared = Counter(stem.casefold() for stem in stems)  # casefold: disks may not tell A.png from a.png
    found: dict[str, str] = {}
    for path, stem in zip(paths, stems, strict=True):
        long = "_".join(filter(None, (path.resolve().parent.name, stem, path.suffix.lstrip("."))))
        wanted = stem if shared[stem.casefold()] == 1 else long
        every = (wanted, *(f"{wanted}_{number}" for number in range(2, len(paths) + 2)))
        name = next(each for each in every if each.casefold() not in found)
        found[name.casefold()] = name
    return list(found.values())


def name_source(source: ImageSource) -> str:
    """What the results of a source are called."""
    return "stdin" if source == STDIN else printable(source.stem) or "image"


def printable(text: str) -> str:
    """A file name without bytes that are no text, which neither JSON nor a title can hold."""
    return text.encode(errors="replace").decode()


def find_fault(source: ImageSource) -> str | None:
    """Why a source cannot be read, as far as that can be told without opening it."""
    path = source.path if isinstance(source, Frame) else source
    must = f"{str(path)!r} must be an image file"
    if path == STDIN:
        return None
    if _is_folder(path):
        return f"{must}, got a folder without images; name the files, or another folder"
    if not _is_file(path):
        return f"{must}, got nothing there; check the path"
    if not path.stat().st_size:
        return f"{must}, got an empty file; fetch it again"
    package = missing_reader(path)
    kind = path.suffix.lower().lstrip(".")
    return f"{must} of a kind that can be read here, got {kind}; pip install {package}" if package else None


# Those of pathlib raise, depending on the version of Python, for names that are too long and for folders that may not
# be searched.
def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def missing_reader(path: Path) -> str | None:
    """The package that this kind of file needs, where it is not installed."""
    suffix = path.suffix.lower()
    return next((name for kinds, module, name in _READERS if suffix in kinds and not find_spec(module)), None)


def _find_matches(pattern: Path) -> list[Path]:
    """What a pattern matches. Below `**` no link to a folder is followed: it may lead back to where it lies."""
    if "**" not in pattern.parts:
        return [Path(each) for each in glob(str(pattern))]  # noqa: PTH207 - pathlib's finds hidden files too
    place = pattern.parts.index("**")
    after = list(dropwhile("**".__eq__, pattern.parts[place:])) or ["*"]  # several in a row say no more than one
    found = []
    for base in _find_matches(Path(*pattern.parts[:place])) if place else [Path()]:
        for folder, inside, _ in os.walk(base):
            inside[:] = [name for name in inside if name[0] != "."]
            found += _find_matches(Path(escape(folder), *after))
    return found


def _images_in(folder: Path, skip: str | Path | None) -> list[Path]:
    every = STILL | HEIF | VIDEO
    images = (file for file in folder.rglob("*") if file.suffix.lower() in every and _is_file(file))
    inside = sorted(file for file in images if not any(part[0] == "." for part in file.relative_to(folder).parts))
    above = {folder.resolve(), *folder.resolve().parents}
    away = {each.parent.resolve() for each in folder.rglob(RESULTS)} | ({Path(skip).resolve()} if skip else set())
    return [file for file in inside if not (away - above) & set(file.resolve().parents)]
