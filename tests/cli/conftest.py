"""A folder as users have one."""

import shutil
import sys

import numpy as np
import pytest
import small_network
from PIL import Image


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


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
