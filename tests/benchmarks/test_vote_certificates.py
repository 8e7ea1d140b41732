"""Votes are counted, counted on where the work stopped, and certified; on little work."""

import json
import sys
from importlib import import_module

import numpy as np
import pytest
from PIL import Image


def run(name, monkeypatch, *given):
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", "--device", "cpu", *map(str, given)])
    import_module(f"benchmarks.{name}").main()


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """The folder of counts of two images."""
    strips = tmp_path / "cifar10" / "test"
    strips.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (4 * 32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(strips / "000.webp", lossless=True)
    for samples in (200, 300):
        given = ("--data", tmp_path, "--case", "lipschitz_25", "--images", 2, "--samples", samples)
        run("vote_sampling", monkeypatch, *given, "--counts", tmp_path / "counts")
    return tmp_path / "counts"


def test_counts_go_on_where_they_were(counts):
    files = sorted((counts / "lipschitz_25").iterdir())
    assert [each.name for each in files] == ["000.npz", "001.npz"]
    for held in map(np.load, files):
        assert held["samples"] == 300
        assert held["entries_10"].sum() == 300 * 307  # every copy has as many votes
        assert held["groups8_15"].sum() == 300 * 9
        assert held["groups8_15"].max() <= 300
        assert 0 <= held["relaxed"].min() <= held["relaxed"].max() <= 300


def test_the_table_of_votes(counts, tmp_path, monkeypatch):
    run("vote_certificates", monkeypatch, "--counts", counts, "--out", tmp_path)
    stored = json.loads((tmp_path / "vote_certificates_lipschitz_25_cpu.json").read_text())
    assert (stored["images"], stored["samples"], stored["sigma"]) == (2, [300], 0.25)
    rows = {row["map"]: row["at"] for row in stored["table"]}
    assert {"entries", "pixels", "entries, 5 %", "8 x 8 groups, tau 15 %, 15 %", "Sparsified SmoothGrad"} <= set(rows)
    for at in rows.values():
        for name in ("overlap", "cosine", "stay"):  # less is promised of larger changes
            values = [at[str(share)].get(name, 0) for share in stored["shares"]]
            assert values == sorted(values, reverse=True)
    assert rows["entries, 5 %"]["0.02"]["overlap"] > 0
