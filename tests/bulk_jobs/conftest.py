"""Photos, and jobs on them by a network of which every map is known. Caches lie below the folder of the test."""

import datasets
import numpy as np
import pytest
from PIL import Image

import moreaugrad as mg

OPTIONS = {"budget": 16, "sparsity": 0.2}


@pytest.fixture
def photos(tmp_path):
    """A folder with nine photos, one of them broken, in two folders."""
    place = tmp_path / "photos"
    for number in range(8):
        path = place / ("cats" if number < 3 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    (place / "dogs" / "bad.png").write_bytes(b"junk")
    return place


@pytest.fixture
def serial(photos, tmp_path):
    """Runs a job on the photos in this process."""

    def go(out="job", model="small_network:Curved", source=photos, **given):
        run = {name: given.pop(name) for name in list(given) if name in mg.RunOptions.__dataclass_fields__}
        run = mg.RunOptions(**{"engine": "serial"} | run)
        return mg.bulk(model, str(source), tmp_path / out, run=run, **OPTIONS | given)

    return go


@pytest.fixture(autouse=True)
def _caches_below_tmp_path(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf" / "datasets")
