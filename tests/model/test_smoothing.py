"""The smoothed score and its solver: exact cases, honest errors, chosen sparsity, stiff problems."""

import math

import pytest
import torch
from oracles import soft
from torch import nn

import moreaugrad as mg
from moreaugrad.model.prepared import Engine
from moreaugrad.model.smoothing import antithetic


def network(seed=0, inputs=8, outputs=3):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(inputs, 32), nn.Softplus(), nn.Linear(32, outputs)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
    return net


X = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_noise_is_antithetic_standard_normal_and_a_prefix_of_more():
    like = torch.zeros(1)
    many = antithetic((5000,), 7, seed=4, draw=2, like=like)
    assert torch.equal(many[0], -many[1])
    assert torch.equal(many[:4], antithetic((5000,), 4, seed=4, draw=2, like=like))
    assert abs(float(many[::2].mean())) < 0.03
    assert abs(float(many[::2].std()) - 1) < 0.03
    assert not torch.equal(many[0], antithetic((5000,), 1, seed=4, draw=3, like=like)[0])
    assert not torch.equal(many[0], antithetic((5000,), 1, seed=5, draw=2, like=like)[0])


def test_relative_and_absolute_noise_agree():
    spans = X.amax(1) - X.amin(1)
    for row in range(3):
        one = X[row : row + 1]
        relative = mg.MoreauGrad(network(), smoothing=mg.Smoothing(noise_level=0.2), budget=64).attribute(one, 0)
        absolute = mg.MoreauGrad(network(), smoothing=mg.Smoothing(sigma=0.2 * float(spans[row])), budget=64)
        torch.testing.assert_close(relative, absolute.attribute(one, 0), rtol=1e-9, atol=0)


@pytest.mark.parametrize("curve", [0.0, 1.0, 10.0, 1000.0])
def test_smoothed_quadratic_is_exact_and_stays_safe_when_stiff(curve):
    """Antithetic pairs cancel the noise of a quadratic, so any error is the solver's own: what the first steps
    left in the mean. It must be small, and vanish as the steps grow in number."""
    a = torch.arange(8, dtype=torch.float64)
    wanted = (curve * X + a) / (1 + curve)

    def error(budget):
        method = mg.MoreauGrad(lambda v: curve * v.square().sum(1) / 2 + v @ a, rho=1.0, budget=budget)
        return float((method.attribute(X) - wanted).abs().max() / wanted.abs().max())

    assert error(800) < 1e-3
    assert error(6400) < 1e-6


def test_smoothed_kink_has_its_known_gradient():
    """E grad relu(w.(x+z)) = w Phi(w.x / (sigma |w|)); rho -> 0 leaves just that."""
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x = torch.tensor([[0.3, 0.1, -0.2]], dtype=torch.float64)
    method = mg.MoreauGrad(
        lambda v: torch.relu(v @ w), rho=1e-6, smoothing=mg.Smoothing(sigma=0.5, samples=400), budget=32_000
    )
    found = method.explain(x)
    wanted = w * 0.5 * (1 + math.erf(float(x @ w) / (0.5 * float(w.norm())) / 2**0.5))
    assert ((found.map - wanted).abs() <= 5 * found.stderr).all()
    assert (found.stderr < 0.02).all()


def test_long_solve_meets_the_fixed_point_condition():
    found = mg.SparseMoreauGrad(
        network(), rho=0.5, eta=0.1, budget=64_000, smoothing=mg.Smoothing(samples=400)
    ).explain(X, 0)
    scale = 0.1 * (X.amax(1) - X.amin(1))
    for row in range(3):  # noise of the input's range, not of the displaced point's
        smoothing = mg.Smoothing(sigma=float(scale[row]), samples=20_000)
        at = (X + found.delta)[row : row + 1]
        gradient = mg.SmoothGrad(network(), smoothing, seed=9).attribute(at, 0)
        assert (found.map[row] - soft(gradient, 0.1)[0]).abs().max() < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_intervals_cover_the_truth(rho):
    covers(rho, seed=0, repetitions=200)


def test_intervals_cover_the_truth_in_a_short_look():
    covers(1.0, seed=0, repetitions=40)


def covers(rho, seed, repetitions):
    net = network(seed)
    smoothing = mg.Smoothing(samples=2000)
    truth = mg.MoreauGrad(net, rho=rho, smoothing=smoothing, budget=400_000, seed=10**6).explain(X, 0).map
    hits = 0.0
    for run in range(repetitions):
        found = mg.MoreauGrad(net, rho=rho, seed=run).explain(X, 0, internal_batch_size=48)
        hits += float(((found.map - truth).abs() <= 1.96 * found.stderr).double().mean())
    assert 0.90 <= hits / repetitions <= 0.99


def test_converged_says_no_when_a_solve_was_cut_short():
    """Two steps cannot reach the optimum of a stiff score; the residual says so."""
    score = lambda v: 5 * v.square().sum(1) + v.sin().sum(1)  # noqa: E731
    short = mg.MoreauGrad(score, budget=48).explain(X)
    long = mg.MoreauGrad(score, budget=6400).explain(X)
    assert not short.converged.any()
    assert (long.residual < short.residual).all()


def test_budget_pays_for_everything():
    rows = []

    def counting(v):
        rows.append(len(v))
        return network()(v)

    for budget, samples in [(800, 16), (50, 16), (32, 16), (160, 7)]:
        rows.clear()
        method = mg.MoreauGrad(counting, budget=budget, smoothing=mg.Smoothing(samples=samples))
        found = method.explain(X[:1], 0, internal_batch_size=samples)
        assert budget - samples < found.gradients <= budget
        assert sum(rows[1:]) == found.gradients  # the first call is the forward pass that reads the score


def test_one_step_has_no_residual_to_show():
    found = mg.MoreauGrad(network(), budget=8).explain(X, 0)
    assert found.residual.isnan().all()
    assert not found.converged.any()
    assert found.map.isfinite().all()


@pytest.mark.parametrize("smoothing", [None, mg.Smoothing()], ids=["plain", "smoothed"])
@pytest.mark.parametrize("share", [0.125, 0.25, 0.5, 1.0])
def test_chosen_sparsity_is_met_exactly_and_by_its_eta(smoothing, share):
    found = mg.SparseMoreauGrad(network(), rho=0.3, sparsity=share, smoothing=smoothing).explain(X, 0)
    assert found.kept.tolist() == [share] * 3
    again = mg.SparseMoreauGrad(network(), rho=0.3, eta=found.eta, smoothing=smoothing).explain(X, 0)
    assert (again.kept - share).abs().max() <= 0.125
    torch.testing.assert_close(again.map, found.map, atol=5e-3, rtol=0)
    alone = mg.SparseMoreauGrad(network(), rho=0.3, eta=float(found.eta[1]), smoothing=smoothing).explain(X[1:2], 0)
    torch.testing.assert_close(alone.map, again.map[1:2])


def test_chosen_share_of_groups():
    labels = torch.arange(8) // 2
    found = mg.GroupSparseMoreauGrad(network(), sparsity=0.5, groups=labels).explain(X, 0)
    active = (found.map.view(3, 4, 2) != 0).any(2).sum(1)
    assert active.tolist() == [2, 2, 2]


def test_all_zero_maps_are_legal_and_explained(caplog):
    found = mg.SparseMoreauGrad(network(), eta=1e3).explain(X, 0)
    assert "3 of 3 maps are all zero" in caplog.text
    assert not found.map.any()
    assert found.converged.all()
    assert "sparsity=" in str(found)


def test_seeds():
    first = mg.MoreauGrad(network(), budget=64, seed=1).explain(X, 0)
    assert torch.equal(first.map, mg.MoreauGrad(network(), budget=64, seed=1).explain(X, 0).map)
    assert not torch.equal(first.map, mg.MoreauGrad(network(), budget=64, seed=2).explain(X, 0).map)
    drawn = mg.MoreauGrad(network(), budget=64, seed=None).explain(X, 0)
    assert torch.equal(drawn.map, mg.MoreauGrad(network(), budget=64, seed=drawn.seed).explain(X, 0).map)
    generator = torch.Generator().manual_seed(3)
    given = mg.MoreauGrad(network(), budget=64, seed=generator).explain(X, 0)
    assert torch.equal(given.map, mg.MoreauGrad(network(), budget=64, seed=given.seed).explain(X, 0).map)


def test_smoothgrad_is_the_average_gradient_and_knows_its_error():
    cubes = mg.SmoothGrad(lambda v: v.pow(3).sum(1), mg.Smoothing(sigma=0.4, samples=40_001)).explain(X)
    wanted = 3 * X.square() + 3 * 0.4**2
    assert ((cubes.map - wanted).abs() <= 5 * cubes.stderr).all()
    assert (cubes.stderr < 0.02).all()
    a = torch.arange(8, dtype=torch.float64)
    torch.testing.assert_close(mg.SmoothGrad(lambda v: v @ a).attribute(X), a.expand(3, 8))


def test_smoothgrad_agrees_with_captum_on_the_same_score():
    from captum.attr import NoiseTunnel, Saliency

    net = network()

    def tunnel(kind):
        torch.manual_seed(0)
        return NoiseTunnel(Saliency(net)).attribute(
            X, kind, nt_samples=4000, nt_samples_batch_size=500, stdevs=0.3, target=1, abs=False
        )

    error = (tunnel("vargrad") / 4000).sqrt()
    ours = mg.SmoothGrad(net, mg.Smoothing(sigma=0.3, samples=4000)).explain(X, 1)
    assert ((ours.map - tunnel("smoothgrad")).abs() <= 5 * (error + ours.stderr)).all()


def test_rare_gradients_are_not_dropped():
    """A kink that one sample in 160 meets carries the whole gradient; leaving such draws out would give 0."""
    x = torch.zeros(1, 2, dtype=torch.float64)
    found = [
        mg.MoreauGrad(
            lambda v: 100 * torch.relu(v[:, 0] - 2.5) + v[:, 1],
            rho=1e-4,
            smoothing=mg.Smoothing(sigma=1.0),
            budget=1600,
            seed=seed,
        ).attribute(x)[0, 0]
        for seed in range(10)
    ]
    truth = 100 * 0.5 * math.erfc(2.5 / 2**0.5)
    spread = 100 * (0.00621 / 1500) ** 0.5 / 10**0.5
    assert abs(float(torch.stack(found).mean()) - truth) < 5 * spread


def test_parts_of_a_draw_have_its_mean():
    from moreaugrad.model.score import ClassScore
    from moreaugrad.model.smoothing import SmoothedScore

    for samples in (1, 2, 5, 16, 17):
        base = ClassScore(Engine(lambda v: v.pow(3).sum(1), rows=4), None, 3)
        score = SmoothedScore(base, mg.Smoothing(sigma=1.0, samples=samples), torch.ones(3, 1, dtype=torch.float64), 0)
        value, grad = score.value_and_grad(X, 2)
        values, grads = score.parts(X, 2)
        torch.testing.assert_close(values.mean(0), value)
        torch.testing.assert_close(grads.mean(0), grad)


@pytest.mark.parametrize("solver", ["dual_averaging", "proximal_gradient", "paper"])
@pytest.mark.parametrize("smoothing", [None, mg.Smoothing(), mg.Smoothing(fixed=True)], ids=["plain", "fresh", "fixed"])
def test_every_solver_takes_every_score(solver, smoothing):
    found = mg.MoreauGrad(network(), rho=0.3, smoothing=smoothing, solver=solver, budget=1600).explain(X, 0)
    usual = mg.MoreauGrad(network(), rho=0.3, smoothing=smoothing, budget=1600).explain(X, 0)
    assert (found.map - usual.map).norm() < 0.1 * usual.map.norm()
    assert found.residual.isfinite().all()
    if solver != "paper":
        assert (found.gradients <= 1600 + 16).all()


def test_few_samples_can_converge_too():
    for samples in (1, 2, 4):
        smoothing = mg.Smoothing(samples=samples)
        method = [mg.MoreauGrad(network(), smoothing=smoothing, budget=200 * samples, seed=s) for s in range(6)]
        runs = [each.explain(X, 0, internal_batch_size=3 * samples).converged for each in method]
        assert torch.stack(runs).double().mean() > 0.7


def test_groups_of_an_image_do_not_count_for_another():
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    weight = torch.randn(2, 4, 4, dtype=torch.float64)
    coarse, fine = torch.arange(16).view(4, 4) // 4, torch.arange(16).view(4, 4) + 100
    both = torch.stack([coarse, fine])

    def kept(labels, images):
        score = lambda v: (v * weight).flatten(1).sum(1)  # noqa: E731
        found = mg.GroupSparseMoreauGrad(score, sparsity=0.25, groups=labels, budget=64).attribute(images)
        return (found != 0).any(1).flatten(1).sum(1).tolist()

    assert kept(both, x) == [4, 4]  # one of four rows of four pixels; four of sixteen pixels
    assert kept(both[:1], x[:1]) == [4]
