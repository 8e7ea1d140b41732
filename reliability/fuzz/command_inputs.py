"""The files that command lines name: photos, labels, weights, a finished job, modules, and what is none of these."""

from __future__ import annotations

import io
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


@cache
def photo(seed: int = 0) -> bytes:
    """The file of a small photo."""
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(handle := BytesIO(), "PNG")
    return handle.getvalue()


@cache
def arrays() -> bytes:
    """The file of a small set of images for training."""
    chance = np.random.default_rng(0)
    parts = {"train": 48, "test": 6}
    pixels = {f"x_{name}": chance.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8) for name, count in parts.items()}
    classes = {f"y_{name}": np.arange(count) % 3 for name, count in parts.items()}
    files: dict[str, Any] = pixels | classes
    np.savez(handle := BytesIO(), **files)
    return handle.getvalue()


@cache
def weights() -> bytes:
    """A checkpoint of the small network."""
    import torch

    torch.save(import_module("small_network").Curved().state_dict(), handle := BytesIO())
    return handle.getvalue()


@cache
def job() -> Path:
    """The folder of a job that is done, but for a broken image."""
    from moreaugrad.cli.app import main

    made = Path(tempfile.mkdtemp())
    (made / "a.png").write_bytes(photo())
    (made / "b.png").write_bytes(b"junk")
    typed = ["--model", "small_network:Curved", "--budget", "4", "--samples", "2", "--engine", "serial", "--quiet"]
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(["bulk", str(made), *typed, "--out", str(made / "job")])
    return made / "job"


ODD_NAME = "n\udcff, 2.png"
PLUGINS = {
    "plugin": "import moreaugrad as mg\n",
    "silent": "",
    "syntax": "def (:\n",
    "raises": "raise KeyError('nothing')\n",
    "leaves": "import sys\nsys.exit(7)\n",
    "asks": "import moreaugrad as mg\nmg.register('prior', 'l1')(int)\n",
}


def make_inputs(folder: Path, with_job: bool) -> None:
    """Files of all sorts in the folder `in`, and photos in the folder in which the command runs."""
    place, here = folder / "in", folder / "out"
    contents = {"photo.png": photo(), "other.png": photo(1), "bad.png": b"junk", "empty.png": b""}
    contents |= {
        "labels.txt": b"cat\ndog\nbird\n",
        "labels.json": b'["cat", "dog", "bird"]',
        "text.csv": b"key,path\n1,2\n",
    }
    contents |= {"data.npz": arrays(), "weights.pt": weights(), "bad.parquet": b"PAR1junk", "bad.tar": b"junk" * 200}
    contents |= {"job.json": b"{}", "bytes.py": b"\xff\xfe\0"}
    place.mkdir()
    for name, content in contents.items():
        (place / name).write_bytes(content)
    with suppress(OSError):  # a system may take no names that are no text
        (place / ODD_NAME).write_bytes(photo())
    (place / "link").symlink_to("photo.png")
    (place / "loop").symlink_to("loop")
    (here / "photos").mkdir()
    for name, content in {"a.png": photo(), "b[1].png": photo(1), "bad.png": b"junk"}.items():
        (here / "photos" / name).write_bytes(content)
    for name, text in PLUGINS.items():
        for each in (place, here):
            (each / f"{name}.py").write_text(text)
    (here / "file").write_bytes(b"a file")
    if with_job:
        shutil.copytree(job(), here / "job")


def digests(folder: Path) -> dict[str, str]:
    """What each input holds."""
    files = [*(folder / "in").iterdir(), *(folder / "out" / "photos").iterdir(), folder / "out" / "file"]
    return {str(each.relative_to(folder)): sha256(each.read_bytes()).hexdigest() for each in files if each.is_file()}
