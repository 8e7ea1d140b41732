"""Pictures in odd places: names that hardly are some, links, devices, files that may not be read, mixed folders."""

from __future__ import annotations

import ctypes
import os
import random
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import moreaugrad as mg
from moreaugrad.data.images import read_image
from reliability.fuzz.case import Case
from reliability.fuzz.damage import spoil
from reliability.fuzz.image_files import list_samples
from reliability.fuzz.tiny_network import find_fault, shared_network

NAMES = (
    *("two\nlines.png", "-rf.png", "--out.png", " .png", "a b.png", "\N{PILE OF POO}.png", "caf\udce9.png"),
    *("\udcff\udcfe.png", "x" * 251 + ".png", "é" * 125 + ".png", "[1].png", "*.png", "?.png", "[.png", "[!].png"),
    *("'\".png", "<b>.png", "%s{}.png", "\\.png", "a\tb.png", "\x1b[31m.png", "\u202egnp.png", "...png", "PNG.PNG"),
    *("con.png", "~.png", "$HOME.png", "a:b.png", "x.png.png", "\x7f.png", "a;b&c|d.png"),
)
ABSENT = (  # without ".", ".." and "/", which are there, and hold whatever the machine does
    *("", "~", "no.png", "\0.png", "a\0b", "x" * 300 + ".png", "x/" * 3000, "-x", "no/*.png"),
    *("[", "**", "***", "a" * 70_000, "http://x/y.png", "file:///etc/x.png", "s3://b/k", "no/such/photo.png", "\udcff"),
    *("/dev/null", "/dev/zero", "/proc/self/mem", "/dev/fd/99", "/proc/self/fd", "nul\n.png", "?" * 300, "[a-" * 90),
)
KINDS = ("png", "jpeg", "gif", "16-bit png", "tiff of pages", "animated gif")


def make_place_case(chance: random.Random) -> Case:
    """One picture, where it is hard to find or to read."""
    content = list_samples()[chance.choice(KINDS)].content
    if chance.random() < 0.1:
        content = spoil(chance, content)
    frames, pattern = chance.random() < 0.3, chance.random() < 0.5
    what = chance.random()
    if what < 0.4:
        name = chance.choice(NAMES)
        return Case(f"a name: {name!r:.60}", lambda folder: _read_name(folder, name, content, frames), _check_any)
    if what < 0.65:
        absent = chance.choice(ABSENT)
        call = _explain if pattern else read_image
        return Case(f"nothing there: {absent!r:.60}", lambda folder: call(absent), _check_any)
    place = chance.choice(list(PLACES))
    return Case(f"a place: {place}", lambda folder: _read_place(folder, place, content, frames), _check_any)


def _explain(source: Any, frames: bool = False) -> mg.Explanation:
    found: mg.Explanation = mg.explain(shared_network(), source, "gradient", frames=frames)
    return found


def _check_any(found: object) -> str | None:
    return find_fault(found) if isinstance(found, mg.Explanation) else None


def _read_name(folder: Path, name: str, content: bytes, frames: bool) -> object:
    path = folder / name
    path.write_bytes(content)
    found = [_explain(each, frames) for each in (path, str(folder), [path, path])]
    return found[0]


def _make_link_loop(folder: Path, path: Path) -> None:
    path.symlink_to(folder / "other.png")
    (folder / "other.png").symlink_to(path)


def _make_folder_loop(folder: Path, path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to(path)
    (path / "up").symlink_to(folder)


def _make_unreadable(folder: Path, path: Path) -> None:
    path.write_bytes(list_samples()["png"].content)
    path.chmod(0)
    for each in (folder, folder.parent, Path(tempfile.gettempdir())):
        each.chmod(0o755)


def _make_closed_folder(folder: Path, path: Path) -> None:
    _make_unreadable(folder, folder / "no.png")
    path.mkdir(0)


PLACES: dict[str, Any] = {
    "an empty folder": lambda folder, path: path.mkdir(),
    "a link to nothing": lambda folder, path: path.symlink_to(folder / "nothing"),
    "a loop of links": _make_link_loop,
    "a loop of folders": _make_folder_loop,
    "a link to a file": lambda folder, path: path.symlink_to(folder / "photo.bin"),
    "a link to a folder": lambda folder, path: path.symlink_to(folder),
    "a pipe": lambda folder, path: os.mkfifo(path),
    "an endless device": lambda folder, path: path.symlink_to("/dev/zero"),
    "a file without permission": _make_unreadable,
    "a folder without permission": _make_closed_folder,
    "a file below a file": lambda folder, path: None,
    "standard input": lambda folder, path: None,
}


def _read_place(folder: Path, place: str, content: bytes, frames: bool) -> object:
    path = folder / "photo.png"
    (folder / "photo.bin").write_bytes(content)
    PLACES[place](folder, path)
    if place == "standard input":
        with _standard_input(content):
            return _explain("-")
    if place == "a file below a file":
        return _explain(folder / "photo.bin" / "photo.png", frames)
    with _as_nobody() if "permission" in place else nullcontext():
        return _explain([path, folder / "no.png"] if "folder without" in place else path, frames)


@contextmanager
def _standard_input(content: bytes) -> Iterator[None]:
    before, sys.stdin = sys.stdin, SimpleNamespace(buffer=BytesIO(content))
    try:
        yield
    finally:
        sys.stdin = before


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Files as somebody without rights sees them, also where root runs the fuzzers, for whom no mode counts."""
    if os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    system = ctypes.CDLL(None)
    system.setfsuid(65534)
    try:
        yield
    finally:
        system.setfsuid(0)


def make_folder_case(chance: random.Random) -> Case:
    """A folder of several files, some of them good, and whatever else lies about."""
    names = chance.sample(NAMES, chance.randrange(4))
    whole = [each for each in list_samples().values() if each.pixels is not None]
    files = {name: list_samples()[chance.choice(KINDS)].content for name in names}
    for number in range(chance.randrange(4)):
        sample = chance.choice(whole)
        files[f"{chance.choice(('a', 'A', 'sub/a', '.hidden/a'))}{number}{sample.ending}"] = sample.content
    if chance.random() < 0.4:
        files["bad.png"] = spoil(chance, list_samples()["png"].content)
    if chance.random() < 0.3:
        files["sub/results.jsonl"] = b"{}"
    odd = chance.choice((None, *PLACES)) if chance.random() < 0.5 else None
    pattern, frames = chance.choice(("", "", "*", "**/*.png", "[a-z]*", "a?.png")), chance.random() < 0.3

    def run(folder: Path) -> object:
        place = folder / "photos"
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        place.mkdir(exist_ok=True)
        if odd is not None:
            PLACES[odd](place, place / "odd.png")
        try:
            return _explain(str(place / pattern) if pattern else place, frames)
        finally:
            _allow_removal(place)

    return Case(f"a folder of {len(files)} files, {odd or 'nothing odd'}, {pattern or 'all'}", run, _check_any)


def _allow_removal(folder: Path) -> None:
    for each in folder.iterdir():
        with suppress(OSError):
            if stat.S_ISDIR(each.lstat().st_mode):
                each.chmod(0o700)
