"""Points that travel from the attack on one map to another map, and figures with the flags of published code."""

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.envelope.derivative import parse_derivative
from moreaugrad.metrics import METRICS
from moreaugrad.studies import run as robustness
from moreaugrad.studies import runner as arena
from moreaugrad.studies import setup as contest
from moreaugrad.studies.plan import Cell, Study
from moreaugrad.studies.run import run_study

EPSILON = 2.0


class Smooth(nn.Module):
    """A small smooth network for pictures of 12 x 12."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.Softplus(), nn.Linear(16, 3))
        for parameter in self.layers.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
        self.eval()

    def forward(self, x):
        return self.layers(x)


X = torch.randn(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))


def study(**changes):
    told = {
        "methods": {"gradient": {}, "smoothgrad": {}, "sparse": {"method": "sparse_moreau", "sparsity": 0.2}},
        "attacks": {"topk": {"steps": 2}, "noise": {}},
        "epsilons": (EPSILON,),
        "modes": ("frozen", "implicit:2x8", "transfer"),
        "budget": 32,
        "attack_budget": 16,
    }
    return Study(**told | changes)


@pytest.fixture(autouse=True, scope="module")
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena, "TOGETHER", (2, 2))
        patch.setattr(robustness, "curves", lambda *args, **options: None)
        patch.setattr(robustness.pictures, "write", lambda figure, path: path.touch())
        yield


@pytest.fixture(scope="module")
def finished(_quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_study(study(), Smooth(), X, folder / "whole").rows, folder


def untimed(path):
    return ["\n".join(line.rpartition(",")[0] for line in path.read_text().splitlines())]


def chosen(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def attack(method, epsilon=EPSILON):
    return mg.ATTACKS["topk"](method, epsilon, steps=2, seed=3)


def smoothgrad(samples, seed):
    return mg.SmoothGrad(Smooth(), mg.Smoothing(noise_level=0.15, samples=samples), seed=seed)


def share_on_top(maps, clean):
    """The objective, written out: the share of |map| on the 40 % largest entries of the clean map."""
    size, first = maps.abs().flatten(1), clean.abs().flatten(1)
    found = []
    for one, other in zip(size, first, strict=True):
        top = other.argsort(descending=True)[: int(0.4 * int((other > 0).sum()))]
        found.append(one[top].sum() / one.sum())
    return torch.stack(found)


def test_the_best_of_the_points_is_taken():
    method, target = smoothgrad(16, 0), Smooth()(X).argmax(1)
    points = [attack(mg.Gradient(Smooth())).perturb(X).x, mg.ATTACKS["noise"](Smooth(), EPSILON).perturb(X).x, X]
    found = attack(method).transfer(X, points)
    clean = method.attribute(X, target)
    values = torch.stack([share_on_top(method.attribute(point, target), clean) for point in points])
    assert bool((Smooth()(points[0]).argmax(1) == target).all() & (Smooth()(points[1]).argmax(1) == target).all())
    torch.testing.assert_close(found.objective, values.amin(0), rtol=1e-5, atol=1e-6)
    best = torch.stack(points)[values.argmin(0), torch.arange(len(X))]
    torch.testing.assert_close(found.x, best)
    assert found.gradients.tolist() == [16 * 4] * 3
    assert found.trace.shape == (4, 3)
    assert bool((found.trace[1:] <= found.trace[:-1]).all())


def test_points_outside_the_ball_are_brought_into_it():
    far = X + 50 * torch.randn(X.shape, generator=torch.Generator().manual_seed(2))
    found = attack(mg.Gradient(Smooth())).transfer(X, [far])
    assert bool((found.l2 <= EPSILON * (1 + 1e-6)).all())


def test_points_that_change_the_prediction_are_left():
    model = Smooth()
    other = mg.ATTACKS["pgd"](model, 30.0, steps=20).perturb(X)
    assert not bool(other.kept.any())
    found = attack(mg.Gradient(model), 30.0).transfer(X, [other.x])
    assert not bool(found.success.any())
    assert bool((found.x == X).all())


@pytest.mark.parametrize("points", [[], X, [X[:1]], [3]])
def test_points_must_be_batches_like_the_inputs(points):
    with pytest.raises(ValueError, match="points must be"):
        attack(mg.Gradient(Smooth())).transfer(X, points)


def test_points_travel_after_all_methods_were_attacked():
    cells = list(study().cells())
    first = next(place for place, cell in enumerate(cells) if cell.mode == "transfer")
    assert all(cell.mode in ("transfer", "strongest") for cell in cells[first:])
    assert not any(cell.mode in ("transfer", "strongest") for cell in cells[:first])
    assert len(set(cells)) == len(cells)
    plain = study(modes=("frozen", "implicit:2x8"))
    assert set(cells) - set(plain.cells()) == {Cell(label, "topk", EPSILON, "transfer") for label in plain.methods}
    sources = study().transfer_sources(Cell("smoothgrad", "topk", EPSILON, "transfer"))
    wanted = [("gradient", "exact"), ("sparse", "frozen"), ("sparse", "implicit:2x8")]
    assert [(each.method, each.mode) for each in sources] == wanted


def test_a_row_of_transfer_is_judged_like_all_others(finished):
    rows, _ = finished
    model = Smooth()
    against = [attack(mg.Gradient(model)).perturb(X).x]
    for mode in ("frozen", "implicit:2x8"):
        derivative = parse_derivative(mode)
        sparse = mg.SparseMoreauGrad(model, sparsity=0.2, budget=16, seed=0, derivative=derivative)
        against.append(attack(sparse).perturb(X).x)
    found = attack(smoothgrad(16, 0)).transfer(X, against)
    judge = smoothgrad(32, 1)
    before, after = (judge.attribute(x, found.target) for x in (X, found.x))
    wanted = METRICS["normalised_distance"](before, after)
    got = [row["normalised_distance"] for row in chosen(rows, method="smoothgrad", mode="transfer")]
    torch.testing.assert_close(torch.tensor(got), wanted, rtol=1e-4, atol=1e-5)


def test_the_strongest_counts_the_points_that_travelled(finished):
    rows, _ = finished
    for best in chosen(rows, mode="strongest", attack="topk"):
        same = {name: best[name] for name in ("method", "attack", "image")}
        others = [row for row in chosen(rows, **same) if row["mode"] != "strongest"]
        assert {row["mode"] for row in others} >= {"transfer"}
        valid = [row for row in others if row["valid"]] or others
        assert best["normalised_distance"] == max(row["normalised_distance"] for row in valid)
        assert best["winner"] in {row["mode"] for row in valid}


@pytest.mark.parametrize("done", [1, 9, 11, 13, 17, 20, 30])
def test_a_study_with_travelling_points_goes_on_anywhere(finished, done):
    _, folder = finished
    lines = (folder / "whole" / "rows.csv").read_text().splitlines(keepends=True)
    again = folder / f"again {done}"
    again.mkdir()
    (again / "study.json").write_bytes((folder / "whole" / "study.json").read_bytes())
    (again / "rows.csv").write_text("".join(lines[: 1 + 2 * done]))
    assert run_study(study(), Smooth(), X, again).finished
    assert untimed(again / "rows.csv") == untimed(folder / "whole" / "rows.csv")


@pytest.mark.parametrize("changes", [{"modes": ("transfer",)}, {"methods": {"gradient": {}}}])
def test_transfer_must_have_somewhere_to_come_from(changes):
    with pytest.raises(ValueError, match="transfer must have other attacks"):
        study(**changes)


# a scout that chooses, and a judge that measures


def test_the_winner_is_named_by_the_scout_and_measured_by_the_judge(tmp_path):
    told = study(methods={"gradient": {}, "smoothgrad": {}}, modes=("frozen", "transfer"), scout=8)
    rows = run_study(told, Smooth(), X, tmp_path / "a").rows
    own, other = attack(smoothgrad(16, 0)).perturb(X), attack(mg.Gradient(Smooth())).perturb(X)
    points = {"exact": own.x, "transfer": attack(smoothgrad(16, 0)).transfer(X, [other.x]).x}

    def moved(x, samples, seed):
        maps = [smoothgrad(samples, seed).attribute(each, own.target) for each in (X, x)]
        return METRICS["normalised_distance"](*maps)

    for mode, x in points.items():
        got = [row["normalised_distance"] for row in chosen(rows, method="smoothgrad", mode=mode)]
        torch.testing.assert_close(torch.tensor(got), moved(x, 8, 4), rtol=1e-4, atol=1e-5)
    for place, row in enumerate(chosen(rows, method="smoothgrad", mode="strongest", attack="topk")):
        far = {mode: float(moved(x, 8, 4)[place]) for mode, x in points.items()}
        assert row["winner"] == max(far, key=far.get)
        wanted = float(moved(points[row["winner"]], 32, 1)[place])
        assert row["normalised_distance"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        assert row["map_gradients"] == 32
    assert {row["map_gradients"] for row in chosen(rows, method="smoothgrad", mode="transfer")} == {8}


@pytest.mark.parametrize("done", [1, 3, 6, 8, 9, 12])
def test_a_study_with_a_scout_goes_on_anywhere(tmp_path, done):
    told = study(methods={"gradient": {}, "smoothgrad": {}}, modes=("frozen", "transfer"), scout=8)
    run_study(told, Smooth(), X, tmp_path / "whole")
    lines = (tmp_path / "whole" / "rows.csv").read_text().splitlines(keepends=True)
    again = tmp_path / "again"
    again.mkdir()
    (again / "study.json").write_bytes((tmp_path / "whole" / "study.json").read_bytes())
    (again / "rows.csv").write_text("".join(lines[: 1 + 2 * done]))
    assert run_study(told, Smooth(), X, again).finished
    assert untimed(again / "rows.csv") == untimed(tmp_path / "whole" / "rows.csv")


def test_labels_that_look_like_numbers_go_on_too(tmp_path):
    told = study(methods={"1": {"method": "gradient"}, "1.5": {"method": "smoothgrad"}}, attacks={"topk": {"steps": 1}})
    for _ in range(40):
        if run_study(told, Smooth(), X[:1], tmp_path, minutes=1e-9).finished:
            break
    assert run_study(told, Smooth(), X[:1], tmp_path).finished


# noise that the two maps do not share


def test_noise_of_its_own_is_that_of_the_second_judge(tmp_path):
    told = study(methods={"smoothgrad": {}}, modes=("frozen",), common_noise=False)
    rows = chosen(run_study(told, Smooth(), X, tmp_path).rows, attack="topk", mode="exact")
    found = attack(smoothgrad(16, 0)).perturb(X)
    before, after = smoothgrad(32, 1).attribute(X, found.target), smoothgrad(32, 2).attribute(found.x, found.target)
    wanted = METRICS["normalised_distance"](before, after)
    torch.testing.assert_close(torch.tensor([row["normalised_distance"] for row in rows]), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="common_noise"):
        study(common_noise=1)


# figures with flags


def test_flags_of_metrics_are_told_with_a_colon():
    a, b = (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    names = ("ssim", "ssim:raw", "normalised_distance:signed", "topk_intersection:signed")
    found = contest.compare_maps(names, a, b)
    assert torch.equal(found["ssim:raw"], METRICS["ssim"](a, b, raw=True))
    assert torch.equal(found["normalised_distance:signed"], METRICS["normalised_distance"](a, b, signed=True))
    assert study(metrics=names).metrics[1:] == names
    for name, words in [("ssim:signed", "a flag of ssim"), ("cosine:k", "a flag of cosine"), ("gini", "two maps")]:
        with pytest.raises(ValueError, match=words):
            study(metrics=(name,))


def test_signed_top_k_takes_the_largest_values_above_zero():
    a = torch.tensor([[5.0, 4.0, -9.0, -8.0, 0.5]])
    b = torch.tensor([[5.0, -4.0, 9.0, -8.0, 0.5]])
    topk = METRICS["topk_intersection"]
    assert topk(a, b, k=2).tolist() == [1.0]  # the sizes are the same
    assert topk(a, b, k=2, signed=True).tolist() == [0.5]  # values: {0, 1} and {2, 0}
    # four are asked for where three are above zero: out of the four
    assert topk(a, a + 1e-3, k=4, signed=True).tolist() == [0.75]
