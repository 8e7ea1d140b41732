"""One solution or two: a score with two basins whose maps are known, the rows, the table and the picture."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg
from paper.data import records
from paper.data.datasets import Sample
from paper.figures import row_runs, solutions
from paper.settings import Settings

SIDE = 8
RIDGE, ELSEWHERE = 7, 8  # images on the ridge between the basins, and in one of them: fewer than half have two
BUDGET = 400


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
    return Sample(name, model, x, pixels, torch.zeros(len(x), dtype=torch.long), None, keys, "made up")


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


# a run


@pytest.fixture
def small(basins, monkeypatch):
    """A few images of each data set in blocks of two, with small budgets."""
    monkeypatch.setattr(
        row_runs, "sample", lambda name, settings, count: sampled(name, basins.classifier, basins.x[:count])
    )
    monkeypatch.setattr(solutions, "QUICK", {"cifar10": 5, "tiny_imagenet": 3, "imagenet": 1})
    monkeypatch.setattr(solutions, "IMAGES", solutions.QUICK)
    monkeypatch.setattr(solutions, "BLOCK", 2)
    monkeypatch.setattr(solutions, "FEW", 16)
    monkeypatch.setattr(solutions, "save", lambda figure, path: path.touch())


def asked(out, **options):
    given = {"quick": True, "device": "cpu", "datasets": ("cifar10", "tiny_imagenet")} | options
    return Settings(Path("data"), out, **given)


@pytest.mark.usefixtures("small")
def test_a_run_leaves_rows_and_their_table_which_can_be_made_again(tmp_path, monkeypatch):
    assert solutions.make(asked(tmp_path))
    rows, lines = (records.read(tmp_path / f"solutions{name}.csv") for name in ("_rows", ""))
    assert len(rows) == 3 * (5 + 3)
    assert [(line["dataset"], line["rho"], line["n"]) for line in lines] == [
        *(("cifar10", rho, "5") for rho in ("0.1", "0.3", "1")),
        *(("tiny_imagenet", rho, "3") for rho in ("0.1", "0.3", "1")),
    ]
    for line in lines:
        some = [float(row["distance"]) for row in rows if all(row[name] == line[name] for name in ("dataset", "rho"))]
        found = [float(line[name]) for name in ("median", "mean", "largest", "far_share", "gradients")]
        far = sum(value > 2 * np.median(some) for value in some) / len(some)
        assert found == pytest.approx([np.median(some), np.mean(some), max(some), far, 16], rel=1e-5)
    before = (tmp_path / "solutions.csv").read_bytes()
    (tmp_path / "solutions.csv").unlink()
    for module, name in ((row_runs, "sample"), (solutions, "measure")):
        monkeypatch.setattr(module, name, None)
    # the description says what the rows were made with, not the options of this run
    assert solutions.make(replace(asked(tmp_path, redraw=True), quick=False, datasets=("imagenet",)))
    assert (tmp_path / "solutions.csv").read_bytes() == before
    assert solutions.make(asked(tmp_path / "empty", redraw=True))
    assert not (tmp_path / "empty").exists()


def test_a_run_that_stops_early_shows_what_is_there(small, tmp_path):
    assert solutions.make(asked(tmp_path, minutes=1e-9)) is False
    assert [(line["rho"], line["n"]) for line in records.read(tmp_path / "solutions.csv")] == [("0.1", "2")]


# the picture and the command
