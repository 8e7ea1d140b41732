"""The table of certificates runs from end to end on little work, and its figures mean what they say."""

import json
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, 12).astype(np.uint8)
    np.savez(tmp_path / "c.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    weights = Path(str(files("moreaugrad.models"))) / "weights" / "lipschitz_cifar10.safetensors"
    given = (
        f"--data {tmp_path / 'c.npz'} --networks 0.25={weights} --images 2 --samples 600 --device cpu --out {tmp_path}"
    )
    monkeypatch.setattr(sys, "argv", ["benchmarks/certificates.py", *given.split()])
    import_module("benchmarks.certificates").main()
    return json.loads((tmp_path / "certificates_cpu.json").read_text())["table"]


def test_the_table_of_certificates(table):
    assert [row["case"] for row in table] == ["lipschitz", "sparsified smoothgrad"]
    for row in table:
        shares = [row["at"][share] for share in ("0.02", "0.05", "0.1", "0.2")]
        assert row["images"] == 2
        for name in ("not_vacuous", "overlap", "cosine"):  # less is promised of larger changes
            values = [each[name] for each in shares]
            assert values == sorted(values, reverse=True)
    lipschitz = table[0]
    assert 0 < lipschitz["map_length"] <= 1 + lipschitz["sampling_error"]
    assert lipschitz["map_lipschitz_at_0.1"] <= 0.8 / 0.25 / (1 - 0.05)
