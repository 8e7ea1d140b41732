"""One solution or two: a score with two basins whose maps are known, and a run that is stopped and gone on with."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import paper_path  # noqa: F401  (makes paper importable)
import pytest
import torch
from torch import nn

import moreaugrad as mg
from paper import __main__ as command
from paper import records, solutions, studies
from paper.datasets import Sample
from paper.settings import Settings

SIDE = 8
RIDGE, ELSEWHERE = 7, 8  # images on the ridge between the basins, and in one of them: fewer than half have two
BUDGET = 400
TABLES = ("solutions.csv", "solutions_rows.csv")


class Basins(nn.Module):
    """slope t - bend sqrt(1 + u^2) + a ripple, with t and u the sum and the difference of the image's halves.

    The ripple is far finer than the noise: smoothed it is gone, but gradients of few samples have it, so that chance
    says to which side of u = 0 a solve goes. There are two sides to go to where rho bend > 1.
    """

    slope, bend, ripple, pitch = 2.0, 2.0, 1.0, 40.0

    def __init__(self) -> None:
        super().__init__()
        side = torch.ones(3, SIDE, SIDE)
        side[..., SIDE // 2 :] = -1
        self.register_buffer("across", side.flatten() / side.norm())
        self.register_buffer("along", side.abs().flatten() / side.norm())

    def forward(self, x):
        t, u = (x.flatten(1) @ each for each in (self.along, self.across))
        score = self.slope * t - self.bend * (1 + u.square()).sqrt() + self.ripple / self.pitch * (self.pitch * u).sin()
        return torch.stack([score, score - 50], 1)


def pictures(model, ridge, elsewhere):
    """Of other contrasts, so that the same noise comes in other sizes; some with u = 0, the others far from it."""
    found = []
    for number in range(ridge + elsewhere):
        noise = torch.randn(3 * SIDE * SIDE, generator=torch.Generator().manual_seed(number))
        x = (0.3 + 0.03 * number) * noise
        wanted = 0.0 if number < ridge else 3.0 * (-1) ** number
        found.append((x + (wanted - x @ model.across) * model.across).view(3, SIDE, SIDE))
    return torch.stack(found)


def sampled(name, model, x):
    keys, pixels = [f"{name}, {place}" for place in range(len(x))], [np.zeros((SIDE, SIDE, 3), np.uint8)] * len(x)
    return Sample(name, model, x, pixels, torch.zeros(len(x), dtype=torch.long), None, keys, "made up", ["a", "b"])


@pytest.fixture(scope="module")
def basins():
    model = Basins().eval()
    return sampled("cifar10", model, pictures(model, RIDGE, ELSEWHERE))


@pytest.fixture(scope="module")
def measured(basins):
    """The rows of all images for each rho."""
    return {rho: solutions.measure(basins, slice(0, len(basins)), rho, BUDGET) for rho in solutions.RHOS}


def bent(model, x, rho):
    """|part of the map across| of each image on the ridge, by bisection: where m = bend E u / sqrt(1 + u^2),
    u = rho m + sigma z, with Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    found = []
    for sigma in 0.1 * np.ptp(x.flatten(1).numpy(), axis=1):
        low, high = 1e-3, model.bend
        for _ in range(60):
            middle = (low + high) / 2
            u = rho * middle + sigma * points
            over = model.bend * (weights * u / np.sqrt(1 + u**2)).sum() > middle
            low, high = (middle, high) if over else (low, middle)
        found.append(low if low > 2e-3 else 0.0)
    return np.array(found)


@pytest.mark.parametrize("rho", solutions.RHOS)
def test_two_seeds_find_one_solution_where_rho_is_small_and_one_each_where_it_is_large(basins, measured, rho):
    """Maps (slope, m) and (slope, -m) with m < slope are twice the sine of their angle to (slope, 0) apart.

    m is known but for four standard errors: the ripple's over the samples, larger by the curvature of the objective.
    """
    model, rows = basins.classifier, measured[rho]
    m, slope = bent(model, basins.x[:RIDGE], rho), model.slope
    two = rho * model.bend > 1
    assert (m > 1).all() if two else (m == 0).all()
    curvature = 1 - rho * model.bend / (1 + (rho * m) ** 2) ** 1.5
    error = 4 * model.ripple / math.sqrt(BUDGET) / curvature
    low, high = np.arctan2(np.maximum(m - error, 0), slope), np.arctan2(m + error, slope)
    on, off = np.split(np.array([row["distance"] for row in rows]), [RIDGE])
    far, near = on >= 2 * np.sin(low), on <= 2 * np.sin((high - low) / 2)
    assert (far | near)[m > 0].all()
    assert (on <= 2 * np.sin(high)).all()
    assert (far & ~near).any() == two
    assert near.all() == (not two)
    assert (off < 0.1).all()  # in one basin for every rho
    for column in ("length", "other_length"):
        lengths = np.array([row[column] for row in rows[:RIDGE]])
        assert (slope / np.cos(low) * (1 - 1e-3) <= lengths).all()
        assert (lengths <= slope / np.cos(high) * (1 + 1e-3)).all()


@pytest.mark.parametrize("rho", solutions.RHOS)
def test_both_seeds_tell_the_value_of_the_envelope(basins, measured, rho):
    """slope t - rho slope^2 / 2, and the least of -bend E sqrt(1 + (u + delta + z)^2) + delta^2 / (2 rho) by a grid."""
    model, x = basins.classifier, basins.x
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    delta = np.linspace(-3, 3, 1201)[:, None]
    for image, row in zip(x, measured[rho], strict=True):
        t, u = (float(image.flatten() @ each) for each in (model.along, model.across))
        noise = 0.1 * float(image.max() - image.min()) * points
        mean = (weights / weights.sum() * np.sqrt(1 + (u + delta + noise) ** 2)).sum(1)
        least = (delta[:, 0] ** 2 / (2 * rho) - model.bend * mean).min()
        wanted = model.slope * t - rho * model.slope**2 / 2 + least
        assert [row["envelope"], row["other_envelope"]] == pytest.approx([wanted, wanted], abs=0.06)


def test_the_share_of_images_with_two_solutions_is_counted(measured):
    rows = [{name: str(value) for name, value in row.items()} for some in measured.values() for row in some]
    lines = solutions.summarise(rows, {"cifar10": {"budget": BUDGET}})
    assert [(line["dataset"], line["rho"], line["n"], line["gradients"]) for line in lines] == [
        ("cifar10", rho, RIDGE + ELSEWHERE, BUDGET) for rho in solutions.RHOS
    ]
    distances = np.array([row["distance"] for row in measured[1.0]])
    last = lines[-1]
    assert last["far_share"] >= (distances > 1).mean() > 0
    assert last["largest"] == distances.max() > 1
    assert last["mean"] > 3 * last["median"]
    assert all(line["largest"] < 0.15 for line in lines[:-1])


def test_rows_are_of_two_seeds_of_the_method_itself(basins):
    one, two = (
        mg.MoreauGrad(basins.classifier, 0.3, smoothing=mg.Smoothing(0.1), budget=48, seed=seed).explain(basins.x[3:5])
        for seed in (0, 1)
    )
    rows = solutions.measure(basins, slice(3, 5), 0.3, 48)
    assert [row["image"] for row in rows] == [3, 4]
    assert [row["key"] for row in rows] == basins.keys[3:5]
    assert [(row["length"], row["other_length"]) for row in rows] == [
        (float(a.norm()), pytest.approx(float(b.norm()))) for a, b in zip(one.map, two.map, strict=True)
    ]
    unit = [each.map.abs() / each.map.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for each in (one, two)]
    assert [row["distance"] for row in rows] == pytest.approx((unit[0] - unit[1]).flatten(1).norm(dim=1).tolist())
    assert [row["envelope"] for row in rows] == one.envelope.tolist()
    assert [row["other_envelope"] for row in rows] == two.envelope.tolist()


# runs


@pytest.fixture
def small(basins, monkeypatch):
    """A few images of each data set in blocks of two, with small budgets."""

    def sample(name, settings, count, seed=0):
        return sampled(name, basins.classifier, basins.x[:count])

    monkeypatch.setattr(solutions, "sample", sample)
    monkeypatch.setattr(solutions, "QUICK", {"cifar10": 5, "tiny_imagenet": 3, "imagenet": 1})
    monkeypatch.setattr(solutions, "BLOCK", 2)
    monkeypatch.setattr(solutions, "FEW", 16)
    monkeypatch.setattr(studies, "load", lambda name, settings: basins.classifier)
    monkeypatch.setattr(solutions, "draw", lambda rows, path: path.write_text(f"{len(rows)} dots"))


def asked(out, **options):
    given = {"quick": True, "device": "cpu", "datasets": ("cifar10", "tiny_imagenet")} | options
    return Settings(Path("data"), out, **given)


def contents(folder, names=TABLES):
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture
def whole(small, tmp_path):
    assert solutions.make(asked(tmp_path / "whole"))
    return tmp_path / "whole"


def test_a_run_leaves_rows_a_table_a_description_and_a_picture(whole):
    rows = records.read(whole / "solutions_rows.csv")
    assert len(rows) == 3 * (5 + 3)
    assert [row["key"] for row in rows if (row["dataset"], row["rho"]) == ("cifar10", "0.3")] == [
        f"cifar10, {place}" for place in range(5)
    ]
    lines = records.read(whole / "solutions.csv")
    assert [(line["dataset"], line["rho"], line["n"]) for line in lines] == [
        *(("cifar10", rho, "5") for rho in ("0.1", "0.3", "1")),
        *(("tiny_imagenet", rho, "3") for rho in ("0.1", "0.3", "1")),
    ]
    for line in lines:
        some = [float(row["distance"]) for row in rows if all(row[name] == line[name] for name in ("dataset", "rho"))]
        told = [float(line[name]) for name in ("median", "mean", "largest", "far_share", "gradients")]
        far = sum(value > 2 * np.median(some) for value in some) / len(some)
        assert told == pytest.approx([np.median(some), np.mean(some), max(some), far, 16], rel=1e-5)
    told = json.loads((whole / "solutions.json").read_text())
    assert {name: (each["images"], each["budget"], len(each["runs"])) for name, each in told.items()} == {
        "cifar10": (5, 16, 1),
        "tiny_imagenet": (3, 16, 1),
    }
    assert told["cifar10"]["runs"][0]["command"].startswith("python -m paper --figure solutions --data data --quick")
    assert str(whole) not in (whole / "solutions.json").read_text()  # nothing of this machine
    assert (whole / "solutions.png").read_text() == "24 dots"
    assert {path.name for path in whole.iterdir()} == {*TABLES, "solutions.json", "solutions.png"}


def test_a_run_that_is_killed_anywhere_ends_with_the_same_rows(whole, tmp_path):
    cut = tmp_path / "cut"
    cut.mkdir()
    lines = (whole / "solutions_rows.csv").read_bytes().splitlines(keepends=True)
    for kept, torn in ((0, b""), (1, b"cifar10,0"), (4, b'cifar10,0,moreau_1,1,"cif'), (24, lines[24][:-1])):
        (cut / "solutions_rows.csv").write_bytes(b"".join(lines[:kept]) + torn)  # in a block, a line, a word
        assert solutions.make(asked(cut))
        assert contents(cut) == contents(whole)


def test_a_run_that_dies_in_a_block_keeps_the_blocks_before_it(whole, tmp_path, monkeypatch):
    measure, calls = solutions.measure, []

    def dying(*given):
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measure(*given)

    monkeypatch.setattr(solutions, "measure", dying)
    with pytest.raises(KeyboardInterrupt):
        solutions.make(asked(tmp_path / "cut"))
    assert len(records.read(tmp_path / "cut" / "solutions_rows.csv")) == 3 * 2
    assert solutions.make(asked(tmp_path / "cut"))
    assert len(calls) == 4 + (3 * (3 + 2) - 3)
    assert contents(tmp_path / "cut") == contents(whole)
    told = json.loads((tmp_path / "cut" / "solutions.json").read_text())
    assert [len(each["runs"]) for each in told.values()] == [2, 2]


def test_a_run_that_is_out_of_time_gets_on_by_a_block_and_shows_what_is_there(whole, tmp_path):
    late = asked(tmp_path / "late", minutes=1e-9)
    for run in range(1, 3 * (3 + 2)):
        assert solutions.make(late) is False
        done = records.read(late.out / "solutions_rows.csv")
        assert len({(row["dataset"], row["block"], row["rho"]) for row in done}) == run
        assert sum(int(line["n"]) for line in records.read(late.out / "solutions.csv")) == len(done)
    assert solutions.make(late)
    assert contents(late.out) == contents(whole)
    assert solutions.make(late)  # nothing is left to do


def test_beginning_anew_measures_again_and_leaves_other_data_sets_alone(whole, monkeypatch):
    measured, measure = [], solutions.measure
    monkeypatch.setattr(solutions, "measure", lambda *given: measured.append(given[0].name) or measure(*given))
    before = contents(whole)
    assert solutions.make(asked(whole))
    assert not measured
    assert solutions.make(asked(whole, restart=True, datasets=("tiny_imagenet",)))
    assert measured == ["tiny_imagenet"] * 6
    assert contents(whole) == before


def test_other_settings_are_refused_and_nothing_is_changed(whole, monkeypatch):
    before = contents(whole, (*TABLES, "solutions.json"))
    monkeypatch.setattr(solutions, "FEW", 24)
    with pytest.raises(ValueError, match=r"budget = 24 where .* has 16; .*--out.*--restart"):
        solutions.make(asked(whole))
    assert contents(whole, (*TABLES, "solutions.json")) == before
    assert solutions.make(asked(whole, restart=True))
    assert {line["gradients"] for line in records.read(whole / "solutions.csv")} == {"24"}


@pytest.mark.parametrize("redraw", [False, True])
def test_rows_of_something_else_are_refused(whole, redraw):
    (whole / "solutions_rows.csv").write_text("dataset,rho\ncifar10,0.1\n")
    before = contents(whole)
    with pytest.raises(ValueError, match=r"must have the columns .*--restart"):
        solutions.make(asked(whole, redraw=redraw))
    assert contents(whole) == before


def test_tables_are_made_of_rows_without_data_or_network(whole, monkeypatch):
    before = contents(whole, (*TABLES, "solutions.json", "solutions.png"))
    (whole / "solutions.csv").unlink()
    (whole / "solutions.png").unlink()
    for name in ("sample", "measure"):
        monkeypatch.setattr(solutions, name, None)
    monkeypatch.setattr(studies, "load", None)
    # what the rows were made with is told by their description, not by the options of this run
    assert solutions.make(replace(asked(whole, redraw=True), quick=False, datasets=("imagenet",)))
    assert contents(whole, before) == before
    assert solutions.make(asked(whole / "empty", redraw=True))
    assert not (whole / "empty").exists()


def test_data_sets_may_come_in_other_runs_and_stand_in_the_usual_order(whole, tmp_path):
    apart = tmp_path / "apart"
    for name in ("tiny_imagenet", "cifar10"):
        assert solutions.make(asked(apart, datasets=(name,)))
    assert contents(apart, ["solutions.csv"]) == contents(whole, ["solutions.csv"])
    one, other = (records.read(folder / "solutions_rows.csv") for folder in (whole, apart))
    assert sorted(map(str, one)) == sorted(map(str, other))


def test_budgets_of_data_sets_that_were_made_apart_are_told_apart(small, tmp_path, monkeypatch):
    monkeypatch.setattr(solutions, "IMAGES", solutions.QUICK)
    for name, budget in (("imagenet", 32), ("tiny_imagenet", 24)):
        assert solutions.make(asked(tmp_path, quick=False, datasets=(name,), budget=budget))
    lines = records.read(tmp_path / "solutions.csv")
    assert {(line["dataset"], line["gradients"]) for line in lines} == {("imagenet", "32"), ("tiny_imagenet", "24")}


def test_fewer_images_and_gradients_are_taken_where_asked_for_but_never_more(small, tmp_path, monkeypatch):
    monkeypatch.setattr(solutions, "IMAGES", solutions.QUICK)
    monkeypatch.setattr(solutions, "BUDGET", 24)
    given = asked(tmp_path, quick=False, images=4, budget=10_000)
    assert solutions.make(given)
    lines = records.read(tmp_path / "solutions.csv")
    assert {(line["dataset"], line["n"], line["gradients"]) for line in lines} == {
        ("cifar10", "4", "24"),
        ("tiny_imagenet", "3", "24"),
    }


# the picture and the command


def test_a_picture_has_a_dot_for_each_image(tmp_path, monkeypatch):
    rows = [
        {"dataset": dataset, "rho": f"{rho:g}", "distance": f"{distance}"}
        for dataset in ("imagenet", "cifar10")
        for rho in (0.1, 1.0)
        for distance in (0.2, 1.3, 0.1)
    ]
    kept = []
    monkeypatch.setattr(solutions, "save", lambda figure, path: kept.append(figure))
    solutions.draw([*rows, {"dataset": "tiny_imagenet", "rho": "0.3", "distance": "0.7"}], tmp_path / "a.png")
    places = kept[0].axes
    assert [axes.get_title() for axes in places] == ["CIFAR-10", "Tiny-ImageNet", "ImageNet"]
    for axes in (places[0], places[2]):
        assert [line.get_ydata().tolist() for line in axes.lines] == [[0.2, 1.3, 0.1], [], [0.2, 1.3, 0.1]]
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 1.3
        for place, line in enumerate(axes.lines):
            assert all(abs(x - place) < 0.5 for x in line.get_xdata())
    assert [line.get_ydata().tolist() for line in places[1].lines] == [[], [0.7], []]
    assert [text.get_text() for text in places[0].get_xticklabels()] == ["0.1", "0.3", "1"]


def test_a_stored_picture_is_of_a_sensible_size(tmp_path):
    from PIL import Image

    rows = [
        {"dataset": dataset, "rho": f"{rho:g}", "distance": f"{math.sin(place) ** 2}"}
        for dataset in solutions.IMAGES
        for rho in solutions.RHOS
        for place in range(24)
    ]
    solutions.draw(rows, tmp_path / "solutions.png")
    with Image.open(tmp_path / "solutions.png") as picture:
        assert 400 <= picture.width <= 1600
    assert (tmp_path / "solutions.png").stat().st_size < 400_000


def test_the_command_knows_the_figure(small, tmp_path, monkeypatch, capsys):
    from paper import datasets

    monkeypatch.setattr(datasets, "check", lambda settings, names: None)
    words = ["--figure", "solutions", "--data", "data", "--out", str(tmp_path), "--quick", "--device", "cpu"]
    assert command.main([*words, "--datasets", "imagenet"]) == 0
    assert "solutions: done" in capsys.readouterr().out
    assert len(records.read(tmp_path / "solutions_rows.csv")) == 3
