"""Accuracy of maps: budgets, chance levels, means of the rows, and methods compared image by image."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg
from paper.data import records
from paper.data.datasets import Sample
from paper.figures import accuracy, row_runs
from paper.report import summaries, tables
from paper.report.markdown import Results
from paper.settings import Settings

TERMS = accuracy.Terms({"tiny_imagenet": 3, "cifar10": 2}, budget=16, points=5, seeds=(0,), rows=8)
COUNTS = {"cifar10": 2, "tiny_imagenet": 3}


class Network(nn.Module):
    """A convolution, its mean and three classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def sampled(name, model, pictures, count):
    x = pictures[:count]
    boxes = torch.tensor([[0.0, 0, 8, 8], [4, 4, 16, 16], [2, 2, 6, 6]])[:count]
    labels = model(x).argmax(1).detach()
    labels[0] = (labels[0] + 1) % 3  # one is wrong
    pixels = [np.zeros((16, 16, 3), np.uint8)] * count
    keys = [f"{name}{place}" for place in range(count)]
    return Sample(name, model, x, pixels, labels, boxes if name == "tiny_imagenet" else None, keys, "made up")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run on small images in blocks of two, with a small budget."""
    out = tmp_path_factory.mktemp("accuracy")
    with torch.random.fork_rng(), pytest.MonkeyPatch.context() as patch:
        model = Network().eval()
        pictures = torch.randn(3, 3, 16, 16)
        patch.setattr(row_runs, "sample", lambda name, settings, count: sampled(name, model, pictures, count))
        patch.setattr(accuracy, "BLOCKS", dict.fromkeys(COUNTS, 2))
        patch.setattr(accuracy, "QUICK", TERMS)
        patch.setattr(summaries, "DRAWS", 40)
        assert accuracy.make(asked(out))
    return out


def asked(out, **options):
    return Settings(Path("data"), out, quick=True, device="cpu", datasets=tuple(COUNTS), **options)


def test_a_run_leaves_rows_of_equal_budgets(finished):
    rows = records.read(finished / "accuracy_rows.csv")
    assert len(rows) == 9 * (2 + 3)
    spent = {row["method"]: int(row["gradients"]) for row in rows}
    assert [spent[name] for name in ("gradient", "gradcam", "random")] == [1, 1, 0]
    assert {spent[name] for name in accuracy.METHODS[1:7]} == {16}
    shares = [float(row["box_share"]) for row in rows if (row["dataset"], row["method"]) == ("tiny_imagenet", "moreau")]
    assert shares == pytest.approx([64 / 256, 144 / 256, 16 / 256], rel=1e-5)  # what a constant map has in the box


def test_summaries_are_means_of_the_rows(finished):
    rows, lines = (records.read(finished / f"accuracy{name}.csv") for name in ("_rows", ""))
    for line in lines:
        if line["method"] in accuracy.METHODS:
            mine = [row for row in rows if (row["dataset"], row["method"]) == (line["dataset"], line["method"])]
            values = [float(row[line["metric"]]) for row in mine if line["over"] == "all" or row["correct"] == "1"]
            assert float(line["mean"]) == pytest.approx(np.nanmean(values), rel=1e-4, abs=1e-6)
            assert float(line["mean_low"]) <= float(line["mean"]) * (1 + 1e-5) + 1e-6
    right = [line for line in lines if (line["method"], line["dataset"]) == ("network", "tiny_imagenet")]
    assert records.number(right[0]["mean"]) == pytest.approx(2 / 3, rel=1e-5)
    assert {line["n"] for line in lines if (line["over"], line["dataset"]) == ("correct", "tiny_imagenet")} == {"2"}
    assert not any(line["metric"] in accuracy.ON_OBJECT for line in lines if line["dataset"] == "cifar10")


def test_the_table_of_differences_is_that_of_the_rows(finished):
    rows, lines = (records.read(finished / f"accuracy_{name}.csv") for name in ("rows", "paired"))
    at = {(row["dataset"], row["method"], row["key"]): row for row in rows}
    assert {line["method"] for line in lines} == set(accuracy.METHODS) - {"smoothgrad"}
    # of each method over all images and over right ones; two methods have maps of zeros, which lie in no box
    assert len(lines) == 2 * (8 * 3 + 8 * 5 - 2 * 2)
    for line in lines:
        dataset, metric = line["dataset"], line["metric"]
        moved = [
            float(row[metric]) - float(at[dataset, "smoothgrad", row["key"]][metric])
            for row in rows
            if (row["dataset"], row["method"]) == (dataset, line["method"])
            and (line["over"] == "all" or row["correct"] == "1")
        ]
        assert int(line["n"]) == len(moved) == COUNTS[dataset] - (line["over"] != "all")
        assert float(line["mean"]) == pytest.approx(np.mean(moved), rel=1e-4, abs=1e-6)


def figures(key, method, value, correct="1", dataset="cifar10", **more):
    """A row; nothing in the columns that are not given."""
    given = {"dataset": dataset, "method": method, "key": key, "correct": correct} | more
    return dict.fromkeys(accuracy.COLUMNS, "") | dict.fromkeys(accuracy.FAITHFUL, str(value)) | given


def test_methods_are_compared_with_smoothgrad_image_by_image():
    """Images differ by tens, the methods by tenths; one image is of the other method alone, and one is wrong."""
    rows = [figures(f"a{place}", "smoothgrad", 10 * place, str(int(place > 0))) for place in range(4)]
    rows += [figures(f"a{place}", "moreau", 10.1 * place + 0.1, str(int(place > 0))) for place in (3, 0, 1, 2)]
    rows += [figures("other", "moreau", 99.0)]
    found = {(line["over"], line["metric"]): line for line in accuracy.pair_methods(rows)}
    assert set(found) == {(over, metric) for over in ("all", "correct") for metric in accuracy.FAITHFUL}
    assert {(line["method"], line["other"]) for line in found.values()} == {("moreau", "smoothgrad")}
    for over, moved in (("all", [0.1, 0.2, 0.3, 0.4]), ("correct", [0.2, 0.3, 0.4])):
        line = found[over, "insertion"]
        assert line["n"] == len(moved)
        assert line["mean"] == pytest.approx(np.mean(moved), rel=1e-9)  # more than SmoothGrad is above zero
        assert min(moved) - 1e-9 <= line["mean_low"] < line["mean"] < line["mean_high"] <= max(moved) + 1e-9


def test_metrics_that_are_not_defined_are_left_out_image_by_image(tmp_path):
    rows = [figures(f"a{place}", "smoothgrad", 0.25, energy_in_box="0.5") for place in range(3)]
    shares = enumerate(("0.7", "", "0.9"))
    rows += [figures(f"a{place}", "moreau", 0.25, energy_in_box=share) for place, share in shares]
    rows += [figures(f"a{place}", "gradient", 0.25) for place in range(3)]
    lines = accuracy.pair_methods(rows)
    found = {(line["method"], line["metric"]): line for line in lines if line["over"] == "all"}
    assert set(found) == {
        *(("moreau", metric) for metric in (*accuracy.FAITHFUL, "energy_in_box")),
        *(("gradient", metric) for metric in accuracy.FAITHFUL),
    }
    assert found["moreau", "insertion"]["n"] == 3
    line = found["moreau", "energy_in_box"]
    assert (line["n"], line["mean"]) == (2, pytest.approx((0.2 + 0.4) / 2))
    records.write(tmp_path / "accuracy_paired.csv", lines, accuracy.PAIRED)
    nothing = " | ".join(["+0.000 [+0.000, +0.000]"] * 3)
    assert tables.accuracy_paired(Results(tmp_path), "cifar10").splitlines()[2:] == [
        f"| Simple gradient | {nothing} | - |",
        f"| MoreauGrad | {nothing} | **+0.300 [+0.200, +0.400]** |",
    ]


def test_a_random_map_is_the_same_in_any_block():
    of, target = SimpleNamespace(x=torch.zeros(4, 3, 8, 8), name="cifar10"), torch.zeros(4, dtype=torch.long)
    together, _ = accuracy.explain(of, slice(0, 4), target, "random", TERMS)
    alone, _ = accuracy.explain(of, slice(2, 4), target[2:], "random", TERMS)
    assert torch.equal(together[2:], alone)
    assert not torch.equal(together[0], together[1])


def test_methods_keep_their_own_options_but_for_budget_and_noise():
    model = Network().eval()
    for name in accuracy.METHODS[:-1]:
        made, own = (
            accuracy.make_method(name, model, TERMS),
            mg.METHODS[name](model, **({"eta": 0.005} if name == "sparse_moreau" else {})),
        )
        assert getattr(made, "seed", 0) == 0
        half = accuracy.make_method(name, model, replace(TERMS, precision="bfloat16"))
        assert (half.precision == "bfloat16") is hasattr(own, "smoothing")
        if hasattr(own, "smoothing"):
            samples = own.smoothing.samples if hasattr(own, "budget") else TERMS.budget
            assert made.smoothing == replace(own.smoothing, noise_level=0.1, samples=samples)
        if name == "group_sparse_moreau":
            own = replace(own, eta=0.05)  # as published, not the default of the package
        for option in ("eta", "rho", "tau", "gamma", "groups"):
            assert getattr(made, option, None) == getattr(own, option, None)


def test_curves_of_probability_have_the_points_asked_for_but_no_finer_than_rows(monkeypatch):
    x, steps = torch.zeros(1, 3, 16, 16), []

    def metric(maps, x, model, target, *, step, **options):
        steps.append(step)
        return torch.zeros(len(x))

    monkeypatch.setattr(accuracy, "mg", SimpleNamespace(METRICS={"insertion": metric, "deletion": metric}))
    for points in (5, 1000):
        accuracy.measure_faithfulness(x, x, None, torch.zeros(1), replace(TERMS, points=points))
    assert steps == [64, 64, 64, 16, 16, 16]
