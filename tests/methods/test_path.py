"""Paths of weights, and stopping early: the same maps for fewer gradients."""

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.envelope.solvers.path import PathAveraging, mixed

X = torch.randn(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SHARES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8]


def network(seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(40, 64), nn.Softplus(), nn.Linear(64, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4
    return net


def test_a_path_meets_every_share_in_the_order_asked():
    shares = [0.5, 0.1, 0.8, 0.2]
    points = mg.SparseMoreauGrad(network(), sparsity=shares, rho=0.3).explain(X, 0)
    assert [round(float(point.kept.mean()), 6) for point in points] == shares
    assert [point.options["sparsity"] for point in points] == shares
    maps = mg.SparseMoreauGrad(network(), sparsity=shares, rho=0.3).attribute(X, 0)
    assert all(torch.equal(one, two.map) for one, two in zip(maps, points, strict=True))


@pytest.mark.parametrize("smoothing", [mg.Smoothing(), None], ids=["smoothed", "plain"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_points_of_a_path_are_those_of_long_solves(rho, smoothing):
    points = mg.SparseMoreauGrad(network(), eta=[0.02, 0.05, 0.1], rho=rho, smoothing=smoothing).explain(X, 0)
    for eta, point in zip([0.02, 0.05, 0.1], points, strict=True):
        many = smoothing and mg.Smoothing(samples=400)
        long = mg.SparseMoreauGrad(network(), eta=eta, rho=rho, smoothing=many, budget=40_000, seed=5)
        truth = long.explain(X, 0)
        torch.testing.assert_close(point.eta, torch.full_like(point.eta, eta))
        assert (point.map - truth.map).norm() < (0.02 if smoothing else 1e-6) * truth.map.norm()
        if smoothing:
            both = (point.map != 0) & (truth.map != 0)
            assert ((point.map - truth.map)[both].abs() <= 4 * point.stderr[both]).double().mean() > 0.95


def test_a_path_of_eight_costs_at_most_two_maps():
    points = mg.SparseMoreauGrad(network(), sparsity=SHARES, budget=800).explain(X, 0)
    assert sum(int(point.gradients.max()) for point in points) <= 1600


def test_a_stiff_score_is_solved_point_by_point():
    score = lambda v: 20 * v.square().sum(1) + v.sum(1)  # noqa: E731
    points = mg.SparseMoreauGrad(score, eta=[0.0, 1.0]).explain(X)
    for eta, point in zip([0.0, 1.0], points, strict=True):
        alone = mg.SparseMoreauGrad(score, eta=eta).attribute(X)
        assert torch.equal(point.map, alone)


def test_a_path_of_groups_and_of_several_images_alike():
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weight = torch.randn(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    score = lambda v: (v * weight).flatten(1).tanh().sum(1)  # noqa: E731
    method = mg.GroupSparseMoreauGrad(score, sparsity=[0.25, 0.5], groups=2, budget=160)
    together = method.attribute(x)
    for row in range(4):
        alone = method.attribute(x[row : row + 1])
        for one, two in zip(alone, together, strict=True):
            torch.testing.assert_close(one[0], two[row], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": []}, "sparsity must be a number or a list of at least one number"),
        ({"sparsity": [0.1, 2.0]}, "sparsity must be in"),
        ({"eta": [0.1, -1.0]}, "eta must be a finite number >= 0"),
        ({"eta": [0.1], "sparsity": [0.1]}, "exclude each other"),
        ({"relative_error": 0.0}, "relative_error must be a positive finite number"),
    ],
)
def test_a_wrong_path(options, words):
    with pytest.raises(ValueError, match=words):
        mg.SparseMoreauGrad(network(), **options)


def drawn(points=4, images=2, size=20_000, apart=0.0, noise=None):
    """Means of noisy gradients that differ by `apart` from point to point."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.tensor([1.0, 2.0, 3.0, 4.0][:points]) if noise is None else noise
    first, way = (torch.randn(images, size, generator=generator, dtype=torch.float64) for _ in range(2))
    truth = torch.stack([first + apart * k * way for k in range(points)])
    spread = noise.double().view(-1, 1, 1)
    mean = truth + spread * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    return truth, mean, (spread**2).expand_as(mean)


def test_equal_gradients_are_weighted_by_their_precision():
    _, mean, variance = drawn()
    weights = mixed(mean, variance)
    wanted = 1 / torch.tensor([1.0, 4.0, 9.0, 16.0], dtype=torch.float64)
    torch.testing.assert_close(weights[0, 2], wanted / wanted.sum(), rtol=0.1, atol=0.02)


def test_gradients_far_apart_are_left_alone_and_without_noise_exactly():
    _, mean, variance = drawn()
    far = mean + 1000 * torch.randn(mean.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    near = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    torch.testing.assert_close(mixed(far, variance), near, rtol=0, atol=1e-2)
    truth, mean, variance = drawn(apart=1.0, noise=torch.zeros(4))
    torch.testing.assert_close(torch.einsum("nkj,jnd->knd", mixed(mean, variance), mean), truth, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("apart", [0.0, 0.1, 0.5, 2.0])
def test_mixing_never_hurts_and_its_weights_sum_to_one(apart):
    truth, mean, variance = drawn(apart=apart)
    weights = mixed(mean, variance)
    torch.testing.assert_close(weights.sum(2), torch.ones_like(weights.sum(2)))
    better = torch.einsum("nkj,jnd->knd", weights, mean)
    assert ((better - truth).square().mean(2) <= 1.02 * (mean - truth).square().mean(2)).all()


def test_the_plan_of_a_path_keeps_within_its_price():
    for points in (1, 2, 3, 8, 12):
        for budget in (160, 800, 3200):
            path = PathAveraging(budget)
            spent = path.rounds(8, points) * 2 * sum(path.draws(k, points) for k in range(points)) + 8 * points
            assert spent <= budget * (1 + points / 8) or path.rounds(8, points) == 3


def test_an_image_stops_when_its_map_is_known_well_enough():
    asked = 0.01
    found = mg.MoreauGrad(network(), rho=0.3, budget=16_000, relative_error=asked).explain(X, 0)
    assert (found.gradients < 16_000 / 4).all()
    assert (found.stderr.norm(dim=1) <= asked * found.map.norm(dim=1)).all()
    many = mg.Smoothing(samples=400)
    long = mg.MoreauGrad(network(), rho=0.3, budget=40_000, smoothing=many, seed=7).explain(X, 0)
    assert ((found.map - long.map).norm(dim=1) <= 3 * asked * long.map.norm(dim=1)).all()


def test_images_that_stop_early_do_not_change_the_others():
    noisy = X * torch.tensor([[1.0], [3.0], [0.2]], dtype=torch.float64)
    method = mg.SparseMoreauGrad(network(), eta=0.01, rho=0.3, budget=8000, relative_error=0.003)
    together = method.explain(noisy, [0, 1, 2])
    assert len(set(together.gradients.tolist())) > 1
    for row, target in enumerate([0, 1, 2]):
        alone = method.explain(noisy[row : row + 1], target)
        assert alone.gradients.item() == together.gradients[row].item()
        torch.testing.assert_close(alone.map[0], together.map[row], rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(alone.residual[0], together.residual[row], rtol=1e-6, atol=1e-12)


def test_an_error_too_small_to_reach_spends_the_budget():
    found = mg.MoreauGrad(network(), budget=800, relative_error=1e-9).explain(X, 0)
    usual = mg.MoreauGrad(network(), budget=800).explain(X, 0)
    assert torch.equal(found.map, usual.map)
    assert torch.equal(found.gradients, usual.gradients)
