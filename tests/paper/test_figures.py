"""Figures of maps: known in closed form, cached, and the pictures they are drawn in."""

import json
from dataclasses import replace
from importlib import import_module
from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from paper_data import make_npz
from PIL import Image
from small_network import Linear

import moreaugrad as mg
from paper.data import records
from paper.data.datasets import sample
from paper.data.recipes import RECIPES, make_method
from paper.figures import attack, attack_pairs, compare, eta, intro, rho
from paper.report import tiles
from paper.report.tiles import Grid, Tile

# pictures


def drawn(grid):
    stored = BytesIO()
    figure = grid.draw()
    figure.savefig(stored, format="png", dpi=figure.dpi)
    return figure, np.asarray(Image.open(stored).convert("RGB")).astype(int)


def test_one_entry_of_a_large_map_is_one_bright_pixel():
    single = torch.zeros(3, 224, 224)
    single[1, 100, 7] = 2.0
    _, pixels = drawn(Grid([[Tile(single, "words")]], ["head"], ["row"], "title", "note"))
    bright = (pixels[..., 0] > 240) & (pixels[..., 2] < 200)  # the upper end of inferno; white is bright in blue too
    assert bright.sum() == 1


def test_no_text_leaves_the_picture_or_meets_other_text():
    side, names = 172, list(RECIPES)
    row = [Tile(torch.rand(3, 8, 8), "99.9 %, Gini 0.99") for _ in names]
    headings = [tiles.make_heading(name) for name in names]
    grid = Grid([row, row], headings, ["ImageNet: a name"] * 2, "title " * 30, "note " * 90, side)
    figure, _ = drawn(grid)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
    width, height = figure.bbox.width, figure.bbox.height
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= width and b.y1 <= height for b in boxes)
    clashes = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
    assert not clashes


# figures


def test_rho_on_a_linear_network_is_known_in_closed_form(settings_for):
    make_npz(settings_for().data, classes=3)
    assert rho.make(settings_for(models={"cifar10": "small_network:Linear"}, datasets=("cifar10",)))
    lines = [line for line in records.read(settings_for().out / "rho.csv") if not line["way"]]
    assert [float(line["rho"]) for line in lines] == list(rho.RHOS)
    weight = Linear().weight.detach()
    square = {name: float(row.square().sum()) for name, row in zip(Linear.labels, weight, strict=True)}
    for line in lines[1:]:  # delta = -rho w: the score falls by rho |w|^2, and the map is w for every rho
        size = square[line["class"]]
        assert float(line["distance_to_first"]) < 1e-3
        assert float(line["score_drop"]) == pytest.approx(float(line["rho"]) * size, rel=1e-3)
        assert float(line["map_norm"]) == pytest.approx(size**0.5, rel=1e-4)
        assert line["converged"] == "1"


@pytest.mark.parametrize(("figure", "column"), [("eta", "nonzero_share"), ("groups", "active_groups")])
def test_more_weight_leaves_less_of_a_map(settings_for, figure, column):
    assert import_module(f"paper.figures.{figure}").make(settings_for())
    lines = records.read(settings_for().out / f"{figure}.csv")
    assert {line["dataset"] for line in lines} == {"imagenet", "cifar10"}
    for image in {line["image"] for line in lines}:
        shares = [float(line[column]) for line in lines if line["image"] == image]
        assert shares[0] == 1
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] < 1


def test_a_figure_that_is_there_is_not_made_again(settings_for):
    counted, out = [], settings_for().out

    def make(model, etas, budget):
        counted.append(budget)
        return eta.SWEEP.make_method(model, etas, budget)

    sweep = replace(eta.SWEEP, make_method=make)
    sweep.make(settings_for())
    assert sweep.make(settings_for())
    assert len(counted) == 2  # two images, once
    assert {"command", "date", "device", "versions", "settings"} == set(json.loads((out / "eta.json").read_text()))
    sweep.make(settings_for(restart=True))
    assert len(counted) == 4
    other = replace(sweep, quick=80)
    other.make(settings_for())
    assert len(counted) == 6
    (out / "eta.csv").unlink()
    other.make(settings_for())
    assert len(counted) == 8
    (out / "eta.json").write_text('{"settings":')  # cut off
    other.make(settings_for())
    assert len(counted) == 10
    assert str(out.parent) not in (out / "eta.json").read_text() + (out / "eta.csv").read_text()  # of this machine


def test_a_figure_that_fails_while_it_is_stored_does_not_count_as_there(settings_for, monkeypatch):
    eta.make(settings_for())
    monkeypatch.setattr(records, "write", lambda *given: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        eta.make(settings_for(restart=True))
    monkeypatch.undo()
    assert not (settings_for().out / "eta.json").exists()


def test_compare_says_which_method_does_not_serve_a_network(settings_for):
    compare.make(settings_for(models={"imagenet": "paper_network:Gated"}, datasets=("imagenet",)))
    lines = {line["method"]: line for line in records.read(settings_for().out / "compare.csv")}
    assert set(lines) == set(compare.BUDGETS)
    assert "got silu" in lines["deeplift"]["note"]
    assert not lines["deeplift"]["gini"]
    assert all(float(line["gini"]) > 0 for name, line in lines.items() if name != "deeplift")
    assert float(lines["sparse_moreau"]["nonzero_share"]) < 1
    assert all(int(line["gradients"]) <= compare.QUICK for name, line in lines.items() if name != "deeplift")


@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "sparse_moreau"])
def test_attacked_maps_are_judged_with_noise_that_the_attack_has_not_seen(settings_for, name):
    photos, plan = sample("imagenet", settings_for(), 1), attack_pairs.QUICK
    (pair,) = attack_pairs.make_pairs(photos, name, (3.0,), plan)
    hit, judge = pair.found, make_method(name, photos.classifier, plan.judged, seed=1)
    assert torch.equal(pair.before, judge.attribute(photos.x, target=hit.target))
    assert torch.equal(pair.after, judge.attribute(hit.x, target=hit.target))
    assert bool(hit.kept.all())
    assert float(hit.l2.max()) <= 3.0 * (1 + 1e-5)
    seen = make_method(name, photos.classifier, plan.judged, seed=0).attribute(photos.x, target=hit.target)
    assert torch.equal(seen, pair.before) == (name == "gradient")
    assert (pair.figures["floor_normalised_distance"] == 0).all() == (name == "gradient")


def test_attack_and_intro_agree(settings_for):
    given = settings_for(datasets=("imagenet",))
    assert attack.make(given)
    assert intro.make(given)
    every, some = (records.read(given.out / f"{name}.csv") for name in ("attack", "intro"))
    assert [line["method"] for line in every] == list(attack_pairs.METHODS)
    assert [line["method"] for line in some] == list(intro.METHODS)
    assert all(line in every for line in some)
    assert all(0 <= float(line["normalised_distance"]) <= 2 for line in every)


def test_recipes_are_those_of_the_paper():
    made = {name: make_method(name, Linear().eval(), 100, 4) for name in RECIPES}
    assert made["integrated_gradients"].steps == 50
    assert made["smoothgrad"].noise == mg.Smoothing(0.1, samples=100)
    assert (made["sparse_moreau"].rho, made["sparse_moreau"].eta) == (1.0, 0.005)
    assert (made["group_sparse_moreau"].eta, made["group_sparse_moreau"].groups) == (0.05, 16)
    assert {each.seed for each in made.values() if hasattr(each, "seed")} == {4}
