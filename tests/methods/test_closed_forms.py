"""Maps that are known exactly, in float64 to 1e-8."""

import pytest
import torch
from oracles import minimise, soft, soft_groups

import moreaugrad as mg

TOL = 1e-8
RHOS = [0.05, 0.3, 1.0, 7.0]


@pytest.fixture
def random():
    generator = torch.Generator().manual_seed(3)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)


def check_close(found, wanted):
    assert found.dtype == torch.float64
    assert (found - wanted).abs().max() < TOL


@pytest.mark.parametrize("rho", RHOS)
def test_linear(random, rho):
    a, x = random(6), random(3, 6)
    check_close(mg.MoreauGrad(lambda v: v @ a, rho=rho, smoothing=None).attribute(x), a.expand(3, 6))


@pytest.mark.parametrize("rho", RHOS)
def test_quadratic(random, rho):
    root, b, x = random(6, 6), random(6), random(3, 6)
    curve = root @ root.T
    found = mg.MoreauGrad(lambda v: (v @ curve * v).sum(1) / 2 + v @ b, rho=rho, smoothing=None).explain(x)
    check_close(found.map, torch.linalg.solve(torch.eye(6, dtype=torch.float64) + rho * curve, (x @ curve + b).T).T)
    assert found.converged.all()


def test_weakly_convex_quadratic(random):
    """Negative curvature, but more than -1/rho: still one minimiser."""
    curve, x = torch.diag(torch.tensor([-0.9, -0.5, 0.5, 2.0], dtype=torch.float64)), random(3, 4)
    found = mg.MoreauGrad(lambda v: (v @ curve * v).sum(1) / 2, smoothing=None).attribute(x)
    check_close(found, x @ curve / (1 + curve.diagonal()))


@pytest.mark.parametrize("rho", RHOS)
def test_sparse_linear(random, rho):
    a, x = random(8), random(2, 8)
    found = mg.SparseMoreauGrad(lambda v: v @ a, rho=rho, eta=0.7, smoothing=None).attribute(x)
    check_close(found, soft(a, 0.7).expand(2, 8))
    assert torch.equal(found == 0, (a.abs() <= 0.7).expand(2, 8))


@pytest.mark.parametrize("rho", RHOS)
def test_sparse_diagonal_quadratic(random, rho):
    d, x = random(8).abs() + 0.1, random(3, 8)
    found = mg.SparseMoreauGrad(lambda v: (d * v * v).sum(1) / 2, rho=rho, eta=0.4, smoothing=None).attribute(x)
    check_close(found, soft(d * x, 0.4) / (rho * (d + 1 / rho)))


@pytest.mark.parametrize("rho", RHOS)
def test_group_linear(random, rho):
    a, x = random(1, 2, 4, 4), random(2, 2, 4, 4)
    labels = torch.arange(16).view(4, 4) // 4
    method = mg.GroupSparseMoreauGrad(
        lambda v: (v * a).flatten(1).sum(1), rho=rho, eta=2.5, groups=labels, smoothing=None
    )
    wanted = soft_groups(a.flatten(1), labels.expand(2, 4, 4).reshape(-1), 2.5).view_as(a)
    check_close(method.attribute(x), wanted.expand_as(x))
    assert 0 < (wanted != 0).double().mean() < 1


@pytest.mark.parametrize("rho", RHOS)
def test_absolute_value_beyond_its_kink(rho):
    x = rho * torch.tensor([[-9.0], [-1.5], [1.01], [4.0]], dtype=torch.float64)
    check_close(mg.MoreauGrad(lambda v: v.abs().sum(1), rho=rho, smoothing=None).attribute(x), x.sign())


@pytest.mark.parametrize("rho", RHOS)
def test_huber_everywhere(rho):
    """Huber's function is itself the envelope of |x| at 0.3; envelopes add their radii."""
    x = torch.linspace(-2, 2, 81, dtype=torch.float64)[:, None]

    def huber(v):
        return torch.where(v.abs() <= 0.3, v * v / 0.6, v.abs() - 0.15).sum(1)

    check_close(mg.MoreauGrad(huber, rho=rho, smoothing=None).attribute(x), (x / (0.3 + rho)).clamp(-1, 1))


def softplus_network(random):
    first, second = random(6, 12), random(12)
    return lambda v: torch.nn.functional.softplus(v @ first) @ second


def test_small_rho_is_the_gradient(random):
    score, x = softplus_network(random), random(3, 6)
    gradient = mg.Gradient(score).attribute(x)
    check_close(mg.MoreauGrad(score, rho=1e-10, smoothing=None).attribute(x), gradient)
    check_close(mg.SparseMoreauGrad(score, rho=1e-10, eta=0.5, smoothing=None).attribute(x), soft(gradient, 0.5))


def test_no_eta_is_no_prior(random):
    score, x = softplus_network(random), random(3, 6)
    plain = mg.MoreauGrad(score, rho=0.1, smoothing=None).attribute(x)
    check_close(mg.SparseMoreauGrad(score, rho=0.1, eta=0.0, smoothing=None).attribute(x), plain)
    check_close(
        mg.GroupSparseMoreauGrad(score, rho=0.1, eta=0.0, groups=torch.arange(6) // 2, smoothing=None).attribute(x),
        plain,
    )


def test_groups_of_one_are_sparse(random):
    score, x = softplus_network(random), random(3, 6)
    sparse = mg.SparseMoreauGrad(score, rho=0.1, eta=0.8, smoothing=None).attribute(x)
    check_close(
        mg.GroupSparseMoreauGrad(score, rho=0.1, eta=0.8, groups=torch.arange(6), smoothing=None).attribute(x), sparse
    )
    assert 0 < (sparse == 0).double().mean() < 1


def test_network_agrees_with_a_slow_solver(random):
    score, x, rho, eta = softplus_network(random), random(3, 6), 0.2, 0.6
    delta = minimise(score, x, rho, lambda v, gamma: soft(v, gamma * eta), gamma=0.01, steps=20_000)
    found = mg.SparseMoreauGrad(score, rho=rho, eta=eta, smoothing=None).explain(x)
    check_close(found.map, -delta / rho)
    check_close(found.delta, delta)
    wanted = score(x + delta) + delta.square().sum(1) / (2 * rho) + eta * delta.abs().sum(1)
    check_close(found.envelope, wanted)
    check_close(found.score, score(x))


def test_fixed_noise_is_a_deterministic_problem(random):
    """The fixed-noise optimum obeys delta = ST(-rho grad) of its own sample average."""
    score, x = softplus_network(random), random(2, 6)
    smoothing = mg.Smoothing(sigma=0.3, samples=8, fixed=True)
    found = mg.SparseMoreauGrad(score, rho=0.2, eta=0.6, smoothing=smoothing, budget=8 * 500).explain(x)
    assert found.converged.all()
    assert found.stderr is None
    again = mg.SparseMoreauGrad(score, rho=0.2, eta=0.6, smoothing=smoothing, budget=8 * 400).explain(x)
    check_close(found.map, again.map)


@pytest.mark.parametrize("rho", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.05, 0.1])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_algorithm_1_to_the_letter(random, rho, gamma, steps):
    a, x = random(5), random(2, 5)
    solver = mg.PaperAlgorithm(steps=steps, gamma=gamma)
    found = mg.MoreauGrad(lambda v: v @ a, rho=rho, smoothing=None, solver=solver).attribute(x)
    assert (found - a * (1 - (1 - gamma / rho) ** steps)).abs().max() < 1e-12


def test_algorithm_1_thresholds_by_gamma_eta(random):
    a, x, gamma, eta, rho = random(5), random(1, 5), 0.1, 0.4, 1.0
    delta = torch.zeros(5, dtype=torch.float64)
    trail = []
    for _ in range(12):
        delta = soft((1 - gamma / rho) * delta - gamma * a, gamma * eta)
        trail.append(delta)

    def found(tail):
        solver = mg.PaperAlgorithm(steps=12, gamma=gamma, tail=tail)
        return mg.SparseMoreauGrad(lambda v: v @ a, eta=eta, smoothing=None, solver=solver).attribute(x)

    assert (found(1)[0] + trail[-1]).abs().max() < 1e-12
    assert (found(5)[0] + torch.stack(trail[-5:]).mean(0)).abs().max() < 1e-12
    assert (found(101)[0] + torch.stack(trail).mean(0)).abs().max() < 1e-12


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1e4])
def test_a_map_of_a_score_without_noise_follows_its_scale(scale):
    """map = -delta/rho is homogeneous in a linear score, however small its gradient."""
    weights = torch.randn(12, generator=torch.Generator().manual_seed(5))
    found = mg.MoreauGrad(lambda v: scale * (v @ weights), noise_level=0).explain(torch.zeros(1, 12))
    torch.testing.assert_close(found.map[0] / scale, weights, atol=1e-3, rtol=1e-3)
    assert found.converged.all()
