"""Checks what is about to be published: `python tools/check_distribution.py DIST`, a folder with a wheel and an sdist.

The wheel holds the files of src/moreaugrad that git knows, each as it is there, and its own description; the source
distribution holds files that git knows, and what a wheel is made from. Neither names a folder of this machine. The long
description is the README without dead links.
"""

# ruff: noqa: T201
from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/moreaugrad/"
DESCRIPTION = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
ADDED = {"PKG-INFO"}  # to the source distribution
NEEDED = {"pyproject.toml", "README.md", "LICENSE", ".gitignore"}  # of a build, the last by hatchling's own files
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=[\"']([^\"']+)")
Files = Mapping[str, bytes]


def main(folder: Path) -> int:
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    known, places = read_known(ROOT), [str(ROOT), str(Path.home()), str(folder.resolve())]
    found = {wheel: read_wheel(wheel), source: read_source(source)}
    faults = [*check_wheel(found[wheel], known), *check_source(found[source], known)]
    faults += [fault for files in found.values() for fault in check_places(files, places)]
    for fault in faults:
        print(fault, file=sys.stderr)
    for path, files in found.items():
        print(f"{path.name}: {len(files)} files, {path.stat().st_size / 1e6:.1f} MB")
    return int(bool(faults))


def read_known(root: Path) -> Files:
    """The files that git knows, as they are now."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
    names = filter(None, listed.decode().split("\0"))
    return {name: (root / name).read_bytes() for name in names if (root / name).is_file()}


def read_wheel(path: Path) -> Files:
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_source(path: Path) -> Files:
    """Without the folder that holds all."""
    with tarfile.open(path) as archive:
        handles = ((each.name.partition("/")[2], archive.extractfile(each)) for each in archive.getmembers())
        return {name: handle.read() for name, handle in handles if handle is not None}


def check_wheel(files: Files, known: Files) -> Iterator[str]:
    """Sentences about what should not be there, is missing, or differs."""
    wanted = {name.removeprefix("src/"): content for name, content in known.items() if name.startswith(PACKAGE)}
    own = {name.partition("/")[2]: name for name in files if name.partition("/")[0].endswith(".dist-info")}
    held = {name: content for name, content in files.items() if name not in own.values()}
    yield from _compare("the wheel", held, wanted)
    yield from (f"the wheel lacks {name} in its .dist-info" for name in sorted(DESCRIPTION - own.keys()))
    yield from (f"the wheel has {name} in its .dist-info" for name in sorted(own.keys() - DESCRIPTION))
    if "METADATA" in own:
        yield from check_description(files[own["METADATA"]])


def check_description(metadata: bytes) -> Iterator[str]:
    """What a registry shows as the page of the package."""
    text = message_from_bytes(metadata).get_payload()
    if "pip install moreaugrad" not in text:
        yield "the long description is not the README"
    links = ("".join(each) for each in LINK.findall(text))
    yield from (f"the long description links to {link}, which a registry lacks" for link in links if "://" not in link)


def check_source(files: Files, known: Files) -> Iterator[str]:
    held = {name: content for name, content in files.items() if name not in ADDED}
    wanted = {name: content for name, content in known.items() if name.startswith(PACKAGE) or name in NEEDED}
    pages = {name: content for name, content in known.items() if name in held}
    yield from _compare("the source distribution", held, pages | wanted)
    yield from (f"the source distribution has {name}" for name in sorted(held) if name.startswith(("tests/", "paper/")))


def check_places(files: Files, places: list[str]) -> Iterator[str]:
    """Folders of this machine in any file."""
    for name, content in files.items():
        yield from (f"{name} names the folder {place}" for place in places if f"{place}/".encode() in content)


def _compare(what: str, held: Files, wanted: Files) -> Iterator[str]:
    yield from (f"{what} has {name}, which git does not know" for name in sorted(held.keys() - wanted.keys()))
    yield from (f"{what} lacks {name}" for name in sorted(wanted.keys() - held.keys()))
    both = sorted(held.keys() & wanted.keys())
    yield from (f"{what} has another {name} than the checkout" for name in both if held[name] != wanted[name])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
