"""The benchmark of mask networks runs from end to end on little work, and its results mean what they say."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from moreaugrad.cli.terminal import Terminal
from moreaugrad.models.resnet import ResNet18
from moreaugrad.training.mask_networks import train_mask_network
from moreaugrad.training.trainer import TrainingJob

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    return importlib.import_module("benchmarks.mask_network")


def test_it_runs_and_stores_its_results(benchmark, tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    arrays = {f"x_{half}": generator.integers(0, 256, (12, 32, 32, 3), np.uint8) for half in ("train", "test")}
    labels = {f"y_{half}": generator.integers(0, 10, 12, np.uint8) for half in ("train", "test")}
    np.savez(tmp_path / "tiny.npz", **arrays, **labels)
    from safetensors.torch import save_file

    state = {name: t for name, t in ResNet18(width=4).state_dict().items() if t.is_floating_point()}
    save_file(state, tmp_path / "net.safetensors", {"width": "4"})
    weights = str(tmp_path / "net.safetensors")
    job = TrainingJob(tmp_path / "tiny.npz", tmp_path / "mask.safetensors", "cpu")
    options = {"steps_selector": 1, "steps_decoder": 1, "batch": 4, "width": 4}
    assert train_mask_network(options, job, "resnet18_softplus", weights, Terminal(quiet=True)) == 0
    given = f"--data {tmp_path}/tiny.npz --weights {weights} --network {tmp_path}/mask.safetensors --device cpu"
    monkeypatch.setattr(sys, "argv", ["benchmarks/mask_network.py", *given.split(), "--images", "4", "--steps", "4",
                                      "--out", str(tmp_path)])  # fmt: skip
    benchmark.main()
    stored = json.loads((tmp_path / "mask_network_cpu.json").read_text())
    assert {"command", "date", "hardware", "versions"} <= set(stored)
    assert [row["method"] for row in stored["table"]] == ["mask_network"] * 2 + ["gradcam"] * 2 + ["random"] * 2
    assert all(row["deletion"] >= 0 and row["insertion"] >= 0 for row in stored["table"])


def test_ranks_fall_with_the_map_and_break_ties_at_random(benchmark):
    maps = torch.tensor([[[[0.0, 3.0], [1.0, 2.0]]], [[[5.0, 5.0], [5.0, 5.0]]]])
    ranks = benchmark.rank_pixels(maps, torch.Generator().manual_seed(0))
    assert ranks[0].flatten().tolist() == [3, 0, 2, 1]
    again = [
        benchmark.rank_pixels(maps, torch.Generator().manual_seed(seed))[1].flatten().tolist() for seed in range(8)
    ]
    assert all(sorted(each) == [0, 1, 2, 3] for each in again)
    assert len({tuple(each) for each in again}) > 1


def test_curves_of_a_classifier_that_looks_at_one_pixel(benchmark):
    class Corner(nn.Module):
        def forward(self, x):
            return torch.stack([50 * x[:, 0, 0, 0], torch.full((len(x),), 25.0)], 1)

    x, rest = torch.ones(2, 1, 2, 2), torch.zeros(2, 1, 2, 2)
    first, last = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[3, 1], [2, 0]])
    target = torch.zeros(2, dtype=torch.long)
    for rank, deletion, insertion in ((first, 1 / 5, 4 / 5), (last, 4 / 5, 1 / 5)):
        found = benchmark.curves(Corner(), x, rest, target, rank.expand(2, 1, 2, 2), 4)
        assert found["deletion"] == pytest.approx(deletion, abs=1e-6)
        assert found["insertion"] == pytest.approx(insertion, abs=1e-6)
