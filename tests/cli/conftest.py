"""A folder as users have one."""

import shutil
import sys

import numpy as np
import pytest
import small_network
from PIL import Image


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the user's network, two photos and a broken one."""
    shutil.copy(small_network.SOURCE, tmp_path / "own_small.py")
    for name, seed in (("a.png", 0), ("b[1].png", 1)):
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "bad.png").write_bytes(b"junk")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_small", None)
