"""Statistics of gradients under noise: what they equal, their errors, priors, paths, derivatives and refusals."""

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.batch import relative_error
from moreaugrad.envelope.priors import find_level
from moreaugrad.model.statistics import REPORTED, SMALL, mean_moments

X = torch.randn(3, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
NAMES = list(REPORTED)


def network(activation=nn.Softplus):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(24, 32), activation(), nn.Linear(32, 4)).double().eval()
    for each in net.parameters():
        each.data = torch.randn(each.shape, generator=generator, dtype=torch.float64) / 3
    return net


def make(statistic="mean", rho=0.0, budget=96, **options):
    options = {"noise_level": 0.15, "seed": 3} | options
    return mg.MoreauGrad(network(), rho, statistic=statistic, budget=budget, **options)


@pytest.mark.parametrize("samples", [7, 96, 300])
def test_votes_at_the_input_are_sparsified_smoothgrad(samples):
    noise = {"noise_level": 0.15, "samples": samples, "seed": 3}
    published = mg.SparsifiedSmoothGrad(network(), variant="basic", tau=0.25, **noise).attribute(X, 2)
    ours = make("votes", budget=samples, tau=0.25).attribute(X, 2)
    torch.testing.assert_close(ours, published, rtol=0, atol=1e-12)
    smooth = mg.SmoothGrad(network(), statistic="votes", tau=0.25, **noise).attribute(X, 2)
    torch.testing.assert_close(smooth, published, rtol=0, atol=1e-12)


def test_the_rms_at_the_input_is_the_root_of_the_mean_of_squares():
    square = mg.SmoothGrad(network(), statistic="square", noise_level=0.15, samples=96, seed=3).attribute(X, 2)
    torch.testing.assert_close(make("rms").attribute(X, 2).square(), square, rtol=1e-12, atol=0)


def test_the_mean_at_the_input_is_smoothgrad_bit_for_bit():
    smooth = mg.SmoothGrad(network(), noise_level=0.15, samples=96, seed=3).attribute(X, 2)
    assert torch.equal(make().attribute(X, 2), smooth)


def test_a_small_rho_approaches_the_input():
    distances = []
    for rho in (0.3, 0.03, 0.003):
        near = make("rms", rho, budget=4000, samples=100).attribute(X, 2)
        distances.append(float((near - make("rms", budget=4000).attribute(X, 2)).norm()))
    assert distances[0] > 3 * distances[2]
    assert distances[2] < 0.05 * float(near.norm())


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_one_solve_gives_what_each_statistic_gives_alone(name, rho):
    together = make("rms", rho).explain(X, 2)
    alone = make(name, rho).explain(X, 2)
    assert torch.equal(together.gradients, alone.gradients)
    found = alone.statistics[name] if name == "mean" else alone.map  # -delta/rho is a mean of other gradients
    torch.testing.assert_close(together.statistics[name], found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prior", [None, "l1"])
def test_a_map_without_statistics_is_the_same_bit_for_bit(name, rho, prior):
    options = {} if prior is None else {"prior": prior, "sparsity": 0.25}
    method = make(name, rho, **options)
    kept, bare = method.explain(X, 2), method.explain(X, 2, statistics=False)
    assert bare.statistics is None
    assert kept.statistics is not None
    assert torch.equal(bare.map, kept.map)
    assert torch.equal(bare.stderr, kept.stderr)
    assert torch.equal(bare.gradients, kept.gradients)


@pytest.mark.parametrize("name", [*NAMES, "square"])
def test_smoothgrad_without_statistics_is_the_same_bit_for_bit(name):
    method = mg.SmoothGrad(network(), statistic=name, samples=24, seed=3)
    kept, bare = method.explain(X, 2), method.explain(X, 2, statistics=False)
    assert bare.statistics is None
    assert torch.equal(bare.map, kept.map)
    assert torch.equal(bare.stderr, kept.stderr)


def test_what_statistics_are():
    """Recomputed from gradients on the same noise, one copy at a time."""
    from moreaugrad.model.smoothing import antithetic

    net, sigma = network(), 0.15 * (X.amax(1) - X.amin(1))
    rows = (X[:, None] + sigma[:, None, None] * antithetic((24,), 96, 3, 0, X)).flatten(0, 1).requires_grad_()
    (grads,) = torch.autograd.grad(net(rows)[:, 2].sum(), rows)
    grads = grads.view(3, 96, 24)
    votes = torch.zeros_like(grads).scatter(2, grads.abs().topk(2, dim=2).indices, 1.0).mean(1)
    mean, rms = grads.mean(1), grads.square().mean(1).sqrt()
    wanted = {"mean": mean, "rms": rms, "votes": votes, "geometric": (mean.abs() * rms).sqrt()}
    found = make("votes").explain(X, 2).statistics
    for name, each in wanted.items():
        torch.testing.assert_close(found[name], each, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("entries", [100, SMALL + 1])
@pytest.mark.parametrize("kind", ["distinct", "tied", "zero"])
def test_means_and_votes_are_those_of_sorting(kind, entries):
    """Few entries are sorted out at once, many by a level that a sample suggests."""
    grads = torch.randn(2, 5, entries, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    grads = {"distinct": grads, "tied": grads.round(), "zero": grads * 0}[kind]
    keep = entries // 10
    order = grads.abs().argsort(dim=2, descending=True, stable=True)  # of equal ones the first
    votes = torch.zeros_like(grads).scatter(2, order[:, :, :keep], 1.0).mean(1)
    found = mean_moments(grads, keep)
    torch.testing.assert_close(found, torch.stack([grads.mean(1), grads.square().mean(1), votes], 1))


def true_statistics(score, x, sigma, entries):
    """From a large independent sample, pair by pair as a method draws it."""
    generator = torch.Generator().manual_seed(99)
    sums = 0.0
    for _ in range(20):
        noise = torch.randn(10_000, len(x), dtype=torch.float64, generator=generator)
        rows = (x + sigma * noise).requires_grad_()
        (grads,) = torch.autograd.grad(score(rows).sum(), rows)
        votes = torch.zeros_like(grads).scatter(1, grads.abs().topk(entries, dim=1).indices, 1.0)
        sums = sums + torch.stack([grads.mean(0), grads.square().mean(0), votes.mean(0)]) / 20
    mean, square, votes = sums
    return {
        "mean": mean,
        "rms": square.sqrt(),
        "votes": votes,
        "geometric": (mean.abs() * square.sqrt()).sqrt(),
    }


def is_normal(name, truth, samples):
    """Entries whose statistic is about normal: of a share, where five votes for it and five against are expected."""
    most = 1 - 5 / samples if name == "votes" else float("inf")
    return (truth > (5 / samples if name == "votes" else -float("inf"))) & (truth < most)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_of_two_standard_errors_hold_the_truth(name):
    """95 % of 200 repetitions, if errors were known exactly and the statistic were normal."""
    net = network()
    truth = true_statistics(lambda rows: net(rows)[:, 2], X[0], 0.4, 4)[name]
    inside = []
    for seed in range(200):
        found = make(name, budget=256, tau=4 / 24, noise_level=None, sigma=0.4, seed=seed).explain(X[:1], 2)
        inside.append((found.map[0] - truth).abs() <= 1.96 * found.stderr[0])
    coverage = torch.stack(inside).double().mean(0)
    assert 0.9 <= float(coverage[is_normal(name, truth, 256)].mean()) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rms", "votes", "geometric"])
def test_intervals_around_the_minimiser_hold_the_truth(name):
    truth = make(name, 0.3, budget=100_000, samples=200, tau=4 / 24, seed=77).explain(X[:1], 2).map[0]
    inside = []
    for seed in range(200):
        found = make(name, 0.3, budget=320, tau=4 / 24, seed=seed).explain(X[:1], 2)
        inside.append((found.map[0] - truth).abs() <= 1.96 * found.stderr[0])
    coverage = torch.stack(inside).double().mean(0)
    assert 0.9 <= float(coverage[is_normal(name, truth, 320)].mean()) <= 0.99


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("name", ["rms", "votes", "geometric"])
@pytest.mark.parametrize("prior", [mg.L1(), mg.Group(torch.arange(24) // 4)], ids=["entries", "groups"])
def test_a_prior_acts_on_the_statistic(prior, name, rho):
    dense, sparse = make(name, rho).explain(X, 2), make(name, rho, prior=prior, sparsity=0.5).explain(X, 2)
    taken = prior.for_batch(X) if hasattr(prior, "for_batch") else prior
    level = find_level(taken, dense.map, 0.5)
    torch.testing.assert_close(sparse.map, taken.prox(dense.map, level), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sparse.eta, level, rtol=1e-9, atol=1e-9)
    assert torch.equal(sparse.gradients, dense.gradients)
    assert (sparse.map >= 0).all()
    torch.testing.assert_close(sparse.relative_error, relative_error(sparse.map, sparse.stderr))


def test_at_the_input_the_mean_takes_the_prior_too():
    sparse = make(prior=mg.L1(), sparsity=0.25).explain(X, 2)
    smooth = make().attribute(X, 2)
    level = smooth.abs().sort(1, descending=True).values[:, 6]  # the first entry that is dropped
    torch.testing.assert_close(sparse.map, mg.L1().prox(smooth, level), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sparse.kept, torch.full_like(sparse.kept, 0.25))


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_a_path_costs_one_set_of_gradients_and_gives_what_its_points_give(rho):
    shares = [0.5, 0.125, 0.25]
    path = make("rms", rho, prior=mg.L1(), sparsity=shares).explain_path(X, 2)
    for share, point in zip(shares, path, strict=True):
        alone = make("rms", rho, prior=mg.L1(), sparsity=share).explain(X, 2)
        assert torch.equal(point.map, alone.map)
        assert torch.equal(point.gradients, alone.gradients)


@pytest.mark.parametrize("name", ["rms", "votes"])
def test_an_image_stops_once_its_map_is_known(name):
    found = make(name, budget=100_000, relative_error=0.05).explain(X, 2)
    assert (found.relative_error <= 0.05).all()
    assert (found.gradients < 100_000).all()


@pytest.mark.parametrize("rho", [0.0, 0.2])
@pytest.mark.parametrize("name", ["rms", "geometric", "square", "log_square"])
def test_derivatives_are_those_of_differences(name, rho):
    """On fixed noise the map is a plain function of the input."""
    noise = mg.Smoothing(sigma=0.3, samples=8, fixed=True)
    solver = None if rho == 0 else mg.ProximalGradient(tol=1e-12)
    exact = mg.Implicit(steps=80)
    method = mg.MoreauGrad(
        network(), rho, statistic=name, smoothing=noise, solver=solver, derivative=exact, budget=20_000, seed=2
    )
    x, towards = X[:2], torch.randn(2, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    weights = torch.randn(2, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    leaf = x.clone().requires_grad_()
    (method.attribute(leaf, 1, create_graph=True) * weights).sum().backward()
    h = 1e-5
    ahead, behind = (method.attribute(x + sign * h * towards, 1) for sign in (1, -1))
    slope = ((ahead - behind) * weights).flatten(1).sum(1) / (2 * h)
    torch.testing.assert_close((leaf.grad * towards).flatten(1).sum(1), slope, rtol=2e-4, atol=1e-8)


@pytest.mark.slow
def test_the_slope_of_votes_is_that_of_their_mean():
    """Votes jump, their expectation does not: differences of a large sample on common noise, against Stein's rule."""
    many = {"budget": 40_000, "derivative": mg.Covariance(samples=40_000)}
    method = make("votes", tau=0.25, noise_level=None, sigma=0.5, **many)
    x, weights = X[:1], torch.linspace(-1, 1, 24, dtype=torch.float64)
    towards = torch.ones_like(x) / 24**0.5
    leaf = x.clone().requires_grad_()
    (method.attribute(leaf, 2, create_graph=True) * weights).sum().backward()
    h = 0.2
    ahead, behind = (method.attribute(x + sign * h * towards, 2) for sign in (1, -1))
    slope = float(((ahead - behind) * weights).sum() / (2 * h))
    assert abs(float((leaf.grad * towards).sum()) - slope) < 0.1 * abs(slope) + 0.02


@pytest.mark.parametrize("name", ["rms", "votes", "geometric"])
def test_without_noise_there_is_nothing_to_take_a_statistic_of(name):
    with pytest.raises(ValueError, match=f"{name}.*noise.*smoothing=None"):
        mg.MoreauGrad(network(), statistic=name, smoothing=None)


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_shares_of_votes_lie_between_zero_and_one(tau):
    with pytest.raises((ValueError, TypeError), match="tau"):
        make("votes", tau=tau)


def test_a_share_of_votes_below_one_entry_is_refused_before_the_network_runs():
    def never(rows):
        raise AssertionError("the network must not run")

    method = mg.MoreauGrad(never, 0.0, statistic="votes", tau=0.01, noise_level=0.1)
    with pytest.raises((ValueError, AssertionError), match="tau must keep at least one entry"):
        method.attribute(X, 2)


@pytest.mark.parametrize("solver", ["paper", "dual_averaging", mg.DualAveraging()])
def test_at_the_input_nothing_is_solved(solver):
    with pytest.raises(ValueError, match=r"rho=0.*solver"):
        make(solver=solver)


def test_unknown_statistics_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"statistic.*votse.*votes"):
        make("votse")
    with pytest.raises(ValueError, match="median"):
        mg.SmoothGrad(network(), statistic="median")
