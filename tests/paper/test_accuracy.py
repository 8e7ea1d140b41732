"""Figures of merit of maps: budgets, chance levels, and a run that is stopped and gone on with."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paper_path  # noqa: F401
import pytest
import torch
from torch import nn

import moreaugrad as mg
from paper import accuracy, dots, records, summaries, tables
from paper.datasets import Sample
from paper.ledger import Ledger
from paper.markdown import Results
from paper.settings import Settings

TERMS = accuracy.Terms({"tiny_imagenet": 3, "cifar10": 2}, budget=16, points=5, seeds=(0,), rows=8)


class Network(nn.Module):
    """A convolution, its mean and three classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


@pytest.fixture
def networks(monkeypatch):
    """Small images in place of data sets, in blocks of two, and a small budget."""
    with torch.random.fork_rng():
        model = Network().eval()
        pictures = torch.randn(3, 3, 16, 16)

    def sample(name, settings, count, seed=0):
        x = pictures[:count]
        boxes = torch.tensor([[0.0, 0, 8, 8], [4, 4, 16, 16], [2, 2, 6, 6]])[:count]
        labels = model(x).argmax(1).detach()
        labels[0] = (labels[0] + 1) % 3  # one is wrong
        pixels = [np.zeros((16, 16, 3), np.uint8)] * count
        keys = [f"{name}{place}" for place in range(count)]
        return Sample(name, model, x, pixels, labels, boxes if name == "tiny_imagenet" else None, keys, "made up", [])

    monkeypatch.setattr(accuracy, "sample", sample)
    monkeypatch.setattr(accuracy, "BLOCKS", {"tiny_imagenet": 2, "cifar10": 2})
    monkeypatch.setattr(accuracy, "QUICK", TERMS)
    monkeypatch.setattr(accuracy.dots, "draw", lambda lines, path, note: path.write_text(note))
    monkeypatch.setattr(summaries, "DRAWS", 40)
    return sample


def asked(out, **options):
    return Settings(Path("data"), out, quick=True, device="cpu", datasets=("cifar10", "tiny_imagenet"), **options)


def test_a_run_leaves_rows_summaries_and_a_picture(networks, tmp_path):
    assert accuracy.make(asked(tmp_path))
    rows = records.read(tmp_path / "accuracy_rows.csv")
    assert len(rows) == 9 * (2 + 3)
    spent = {row["method"]: int(row["gradients"]) for row in rows}
    assert {name: spent[name] for name in ("gradient", "gradcam", "random")} == {
        "gradient": 1,
        "gradcam": 1,
        "random": 0,
    }
    assert {spent[name] for name in accuracy.METHODS[1:7]} == {16}
    lines = records.read(tmp_path / "accuracy.csv")
    right = [line for line in lines if (line["method"], line["dataset"]) == ("network", "tiny_imagenet")]
    assert records.number(right[0]["mean"]) == pytest.approx(2 / 3, rel=1e-5)
    assert {line["n"] for line in lines if (line["over"], line["dataset"]) == ("correct", "tiny_imagenet")} == {"2"}
    assert not any(line["metric"] in accuracy.ON_OBJECT for line in lines if line["dataset"] == "cifar10")
    assert "2 of CIFAR-10, 3 of Tiny-ImageNet; 16 gradients" in (tmp_path / "accuracy.png").read_text()


def test_summaries_are_means_of_the_rows(networks, tmp_path):
    assert accuracy.make(asked(tmp_path))
    rows = records.read(tmp_path / "accuracy_rows.csv")
    for line in records.read(tmp_path / "accuracy.csv"):
        if line["method"] in accuracy.METHODS:
            mine = [row for row in rows if (row["dataset"], row["method"]) == (line["dataset"], line["method"])]
            values = [float(row[line["metric"]]) for row in mine if line["over"] == "all" or row["correct"] == "1"]
            assert float(line["mean"]) == pytest.approx(np.nanmean(values), rel=1e-4, abs=1e-6)
            assert float(line["mean_low"]) <= float(line["mean"]) * (1 + 1e-5) + 1e-6


def test_the_share_of_the_box_is_what_a_constant_map_holds(networks, tmp_path):
    assert accuracy.make(asked(tmp_path))
    rows = records.read(tmp_path / "accuracy_rows.csv")
    shares = [float(row["box_share"]) for row in rows if (row["dataset"], row["method"]) == ("tiny_imagenet", "moreau")]
    assert shares == pytest.approx([64 / 256, 144 / 256, 16 / 256], rel=1e-5)


def test_a_run_that_is_cut_anywhere_ends_with_the_same_rows(networks, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert accuracy.make(asked(whole))
    wanted = (whole / "accuracy_rows.csv").read_bytes()
    assert accuracy.make(asked(cut, minutes=1e-9)) is False  # told after nothing
    assert not (cut / "accuracy.csv").exists()
    lines = wanted.splitlines(keepends=True)
    for kept, torn in ((12, b"cifar10,0,mor"), (6, b'tiny"'), (1, b"")):
        (cut / "accuracy_rows.csv").write_bytes(b"".join(lines[:kept]) + torn)
        assert accuracy.make(asked(cut))
        assert (cut / "accuracy_rows.csv").read_bytes() == wanted
        assert (cut / "accuracy.csv").read_bytes() == (whole / "accuracy.csv").read_bytes()


def test_what_is_done_is_not_measured_again(networks, tmp_path, monkeypatch):
    assert accuracy.make(asked(tmp_path))
    monkeypatch.setattr(accuracy, "measure", None)
    assert accuracy.make(asked(tmp_path))


def test_tables_are_made_of_rows_alone(networks, tmp_path, monkeypatch):
    assert accuracy.make(asked(tmp_path))
    tables = [tmp_path / name for name in ("accuracy.csv", "accuracy_paired.csv")]
    wanted = [table.read_bytes() for table in tables]
    for table in (*tables, tmp_path / "accuracy.json"):
        table.unlink()
    for name in ("sample", "measure"):
        monkeypatch.setattr(accuracy, name, None)
    monkeypatch.setattr(accuracy.studies, "load", None)
    assert accuracy.make(asked(tmp_path, redraw=True))
    assert [table.read_bytes() for table in tables] == wanted
    assert not (tmp_path / "accuracy.json").exists()
    assert accuracy.make(asked(tmp_path / "nothing here", redraw=True))
    assert not (tmp_path / "nothing here").exists()


def figures(key, method, value, correct="1", dataset="cifar10", **more):
    """A row; nothing in the columns that are not told."""
    told = {"dataset": dataset, "method": method, "key": key, "correct": correct} | more
    return dict.fromkeys(accuracy.COLUMNS, "") | dict.fromkeys(accuracy.FAITHFUL, str(value)) | told


def test_methods_are_set_against_smoothgrad_image_by_image():
    """Images differ by tens, the methods by tenths; one image is of the other method alone, and one is told wrong."""
    rows = [figures(f"a{place}", "smoothgrad", 10 * place, str(int(place > 0))) for place in range(4)]
    rows += [figures(f"a{place}", "moreau", 10.1 * place + 0.1, str(int(place > 0))) for place in (3, 0, 1, 2)]
    rows += [figures("other", "moreau", 99.0)]
    found = {(line["over"], line["metric"]): line for line in accuracy.paired(rows)}
    assert set(found) == {(over, metric) for over in ("all", "correct") for metric in accuracy.FAITHFUL}
    assert {(line["dataset"], line["method"], line["other"]) for line in found.values()} == {
        ("cifar10", "moreau", "smoothgrad")
    }
    for over, moved in (("all", [0.1, 0.2, 0.3, 0.4]), ("correct", [0.2, 0.3, 0.4])):
        line = found[over, "insertion"]
        assert line["n"] == len(moved)
        assert line["mean"] == pytest.approx(np.mean(moved), rel=1e-9)  # more than SmoothGrad is above zero
        assert min(moved) - 1e-9 <= line["mean_low"] < line["mean"] < line["mean_high"] <= max(moved) + 1e-9


def test_metrics_that_are_not_defined_are_left_out_image_by_image():
    rows = [figures(f"a{place}", "smoothgrad", 0.0, energy_in_box="0.5") for place in range(3)]
    rows += [figures(f"a{place}", "moreau", 0.0, energy_in_box=share) for place, share in enumerate(("0.6", "", "0.9"))]
    rows += [figures(f"a{place}", "gradcam", 0.0) for place in range(3)]
    found = {(line["method"], line["metric"]): line for line in accuracy.paired(rows) if line["over"] == "all"}
    assert set(found) == {
        *(("moreau", metric) for metric in (*accuracy.FAITHFUL, "energy_in_box")),
        *(("gradcam", metric) for metric in accuracy.FAITHFUL),
    }
    assert found["moreau", "insertion"]["n"] == 3
    line = found["moreau", "energy_in_box"]
    assert (line["n"], line["mean"]) == (2, pytest.approx((0.1 + 0.4) / 2))


def test_the_table_has_a_dash_where_a_method_has_no_figure(tmp_path):
    rows = [figures(f"a{place}", "smoothgrad", 0.25, energy_in_box="0.5") for place in range(2)]
    rows += [figures(f"a{place}", "moreau", 0.25, energy_in_box=share) for place, share in enumerate(("0.7", "0.9"))]
    rows += [figures(f"a{place}", "gradient", 0.25) for place in range(2)]
    records.write(tmp_path / "accuracy_paired.csv", accuracy.paired(rows), accuracy.PAIRED)
    found = tables.accuracy_paired(Results(tmp_path), "cifar10").splitlines()
    nothing = " | ".join(["+0.000 [+0.000, +0.000]"] * 3)
    assert found[2:] == [
        f"| Simple gradient | {nothing} | - |",
        f"| MoreauGrad | {nothing} | **+0.300 [+0.200, +0.400]** |",
    ]
    assert found[0].endswith("deletion, to a blur (below zero is better) | energy in the box (above zero is better) |")


def test_methods_of_other_data_sets_and_images_are_not_compared():
    rows = [figures("a", "smoothgrad", 0.1), figures("a", "moreau", 0.2, dataset="imagenet")]
    assert accuracy.paired(rows) == []
    rows += [figures("b", "moreau", 0.2)]
    assert accuracy.paired(rows) == []
    rows += [figures("b", "smoothgrad", 0.2)]
    assert {line["n"] for line in accuracy.paired(rows)} == {1}


def test_the_table_of_differences_is_that_of_the_rows(networks, tmp_path):
    assert accuracy.make(asked(tmp_path))
    rows = records.read(tmp_path / "accuracy_rows.csv")
    at = {(row["dataset"], row["method"], row["key"]): row for row in rows}
    lines = records.read(tmp_path / "accuracy_paired.csv")
    assert {line["method"] for line in lines} == set(accuracy.METHODS) - {"smoothgrad"}
    # of each method over all images and over right ones; two methods have maps of zeros, which lie in no box
    assert len(lines) == 2 * (8 * 3 + 8 * 5 - 2 * 2)
    for line in lines:
        dataset, metric = line["dataset"], line["metric"]
        some = [row for row in rows if (row["dataset"], row["method"]) == (dataset, line["method"])]
        moved = [
            float(row[metric]) - float(at[dataset, "smoothgrad", row["key"]][metric])
            for row in some
            if line["over"] == "all" or row["correct"] == "1"
        ]
        assert int(line["n"]) == len(moved) == {"cifar10": 2, "tiny_imagenet": 3}[dataset] - (line["over"] != "all")
        assert float(line["mean"]) == pytest.approx(np.mean(moved), rel=1e-4, abs=1e-6)


def test_data_sets_may_come_one_by_one(networks, tmp_path):
    for dataset in ("tiny_imagenet", "cifar10"):
        assert accuracy.make(replace(asked(tmp_path), datasets=(dataset,)))
    rows = records.read(tmp_path / "accuracy_rows.csv")
    assert {row["dataset"] for row in rows} == {"tiny_imagenet", "cifar10"}
    assert len(rows) == 9 * 5
    assert set(json.loads((tmp_path / "accuracy.json").read_text())) == {"tiny_imagenet", "cifar10"}


def test_other_settings_are_refused_with_the_way_out(networks, tmp_path, monkeypatch):
    assert accuracy.make(asked(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(accuracy, "QUICK", replace(TERMS, budget=24))
    with pytest.raises(ValueError, match=r"budget = 24 where .* has 16; .*--out.*--restart"):
        accuracy.make(asked(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert accuracy.make(asked(tmp_path, restart=True))
    told = json.loads((tmp_path / "accuracy.json").read_text())["cifar10"]
    assert told["budget"] == 24
    assert len(told["runs"]) == 1  # those of the rows that went are gone too


def test_rows_of_something_else_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must have the columns"):
        Ledger(tmp_path / "rows.csv", tmp_path / "rows.json", ("c",)).read()


def test_a_random_map_is_the_same_in_any_block():
    x, target = torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.long)
    together, _ = accuracy.explained(None, x, target, "random", 0, TERMS)
    alone, _ = accuracy.explained(None, x[2:], target[2:], "random", 2, TERMS)
    assert torch.equal(together[2:], alone)
    assert not torch.equal(together[0], together[1])


def test_methods_keep_their_own_options_but_for_budget_and_noise():
    model = Network().eval()
    for name in accuracy.METHODS[:-1]:
        made, own = accuracy.maker(name, model, TERMS), mg.METHODS[name](model)
        assert getattr(made, "seed", 0) == 0
        half = accuracy.maker(name, model, replace(TERMS, precision="bfloat16"))
        assert (half.precision == "bfloat16") is hasattr(own, "smoothing")
        if hasattr(own, "smoothing"):
            samples = own.smoothing.samples if hasattr(own, "budget") else TERMS.budget
            assert made.smoothing == replace(own.smoothing, noise_level=0.1, samples=samples)
        for option in ("eta", "rho", "tau", "gamma", "groups"):
            assert getattr(made, option, None) == getattr(own, option, None)


def test_curves_of_probability_have_the_points_asked_for_but_no_finer_than_rows(networks, monkeypatch):
    of = networks("cifar10", None, 1)
    steps = []

    def metric(maps, x, model, target, *, step, **options):
        steps.append(step)
        return torch.zeros(len(x))

    monkeypatch.setattr(accuracy, "mg", SimpleNamespace(METRICS={"insertion": metric, "deletion": metric}))
    for points in (5, 1000):
        accuracy.faithfulness(of.x, of.x, of.classifier, torch.zeros(1), replace(TERMS, points=points))
    assert steps == [64, 64, 64, 16, 16, 16]


def test_rows_hold_keys_with_commas(tmp_path):
    ledger = Ledger(tmp_path / "rows.csv", tmp_path / "rows.json", (*("dataset", "block", "method"), "key", "value"))
    ledger.resume({})
    ledger.append([{"dataset": "a", "block": 0, "method": "m", "key": "x, y", "value": math.nan}])
    assert ledger.read() == [{"dataset": "a", "block": "0", "method": "m", "key": "x, y", "value": ""}]
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 2


def test_a_picture_leaves_out_metrics_that_nobody_has(tmp_path):
    line = {"dataset": "cifar10", "method": "moreau", "metric": "gini", "over": "all", "mean": 0.5}
    dots.draw([line | {"mean_low": 0.4, "mean_high": 0.6}], tmp_path / "a.png")
    from PIL import Image

    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width == 350  # one column: 1.9 + 1.6 inches


def test_beginning_anew_with_one_data_set_leaves_the_rows_of_others(tmp_path):
    ledger = Ledger(tmp_path / "rows.csv", tmp_path / "rows.json", ("dataset", "block", "method", "value"))
    ledger.describe({"cifar10": {"budget": 8}, "imagenet": {"budget": 8}}, {"date": "then"})
    ledger.resume({})
    ledger.append([{"dataset": name, "block": 0, "method": "m", "value": 1} for name in ("cifar10", "imagenet")])
    ledger.restart(["cifar10"])
    ledger.describe({"cifar10": {"budget": 16}}, {"date": "now"})
    assert [row["dataset"] for row in ledger.read()] == ["imagenet"]
    then, now = ({"runs": [{"date": date}]} for date in ("then", "now"))
    assert ledger.told() == {"imagenet": {"budget": 8} | then, "cifar10": {"budget": 16} | now}
    ledger.rows.write_text("something else\n")  # no table of ours: nothing else to be kept, so it may go
    ledger.restart(["cifar10", "imagenet"])
    assert ledger.read() == []


def described(tmp_path):
    ledger = Ledger(tmp_path / "rows.csv", tmp_path / "rows.json", ("dataset", "block", "method", "value"))
    ledger.describe({"cifar10": {"budget": 8, "seeds": (0, 1)}}, {"device": "one", "date": "then"})
    return ledger


def test_a_second_run_is_told_beside_the_first_and_not_compared_with_it(tmp_path):
    ledger = described(tmp_path)
    ledger.describe({"cifar10": {"budget": 8, "seeds": (0, 1)}}, {"device": "two", "date": "now"})
    ledger.describe({"imagenet": {"budget": 4}}, {"device": "three"})  # no run of the other's
    runs = [{"device": "one", "date": "then"}, {"device": "two", "date": "now"}]
    assert ledger.told() == {
        "cifar10": {"budget": 8, "seeds": [0, 1], "runs": runs},
        "imagenet": {"budget": 4, "runs": [{"device": "three"}]},
    }


def test_a_description_without_runs_is_gone_on_with(tmp_path):
    ledger = described(tmp_path)
    ledger.description.write_text('{"cifar10": {"budget": 8}}')
    ledger.describe({"cifar10": {"budget": 8}}, {"date": "now"})
    assert ledger.told() == {"cifar10": {"budget": 8, "runs": [{"date": "now"}]}}


@pytest.mark.parametrize(
    ("told", "first"), [({"budget": 8}, "seeds = None where"), ({"seeds": [9], "budget": 9}, "seeds = [9] where")]
)
def test_a_refused_run_changes_nothing_on_the_disk(tmp_path, told, first):
    ledger = described(tmp_path)
    before = ledger.description.read_bytes()
    with pytest.raises(ValueError, match="go on with what they began with") as caught:
        ledger.describe({"imagenet": {"budget": 4}, "cifar10": told}, {"date": "now"})
    assert first in str(caught.value)  # of several the one that is told first
    assert ledger.description.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]
