"""No map of a quadratic score moves further than its exact Lipschitz constant allows, whoever pushes."""

import pytest
import torch

import moreaugrad as mg

D = 12
RHO = 0.6
SPECTRA = {"convex": (0.0, 8.0), "both": (-0.8, 5.0), "balanced": (-0.9, 0.9)}  # rho * 0.9 < 1
FAMILY = {
    "moreau": {},
    "sparse_moreau": {"eta": 0.4},
    "group_sparse_moreau": {"eta": 0.8, "groups": torch.arange(D) // 3},
}
EACH = {"convex": 400, "both": 1000, "balanced": 400}


def lipschitz(prior: bool, low: float, high: float) -> float:
    """Of the map, for curvatures from low to high: the maximum over what one direction can see of both."""
    lam, beta = max(0.0, -low), high
    if not prior:
        return max(lam / (1 - RHO * lam), beta / (1 + RHO * beta))
    small, large = RHO * lam, RHO * beta
    if large <= small:
        return lam / (1 - small)
    h = min(max(1 - 2 * small * large / (large - small), -small), large)
    return ((large - small) * h + small * large) ** 0.5 / (1 + h) / RHO


def score(low, high, seed):
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64, generator=generator))
    values = torch.linspace(low, high, D, dtype=torch.float64)
    a, b = turn @ torch.diag(values) @ turn.T, torch.randn(D, dtype=torch.float64, generator=generator)

    def forward(x):
        found = ((x @ a) * x).sum(1) / 2 + x @ b
        return torch.stack([found, torch.zeros_like(found)], 1)

    return forward, turn


def make(name, forward, **options):
    solver = mg.ProximalGradient(tol=1e-10)
    return mg.METHODS[name](forward, rho=RHO, smoothing=None, budget=600, solver=solver, **FAMILY[name] | options)


def moved(method, x, at):
    """How far each map moved over how far its input did."""
    maps = method.attribute(torch.cat([x[:1], at]), 0, internal_batch_size=512)
    return (maps[1:] - maps[:1]).norm(dim=1) / (at - x[:1]).norm(dim=1)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("name", FAMILY)
def test_no_perturbation_moves_a_map_further_than_its_constant(name, spectrum):
    low, high = SPECTRA[spectrum]
    bound = lipschitz(name != "moreau", low, high)
    forward, turn = score(low, high, seed=7)
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(1, D, dtype=torch.float64, generator=generator)
    method = make(name, forward)
    each = EACH[spectrum]
    random = torch.randn(each - 148, D, dtype=torch.float64, generator=generator)
    lengths = 10 ** torch.empty(len(random), 1, dtype=torch.float64).uniform_(-3, 1, generator=generator)
    random = x + random / random.norm(dim=1, keepdim=True) * lengths
    along = x + torch.cat([s * turn.T for s in (-1.0, 1.0, 0.01, -0.01)])[:48]
    steps = [random, along, climbed(method, x, generator, each - len(random) - len(along))]
    ratios = torch.cat([moved(method, x, at) for at in steps])
    assert len(ratios) == each
    assert ratios.isfinite().all()
    assert ratios.max() <= bound * (1 + 1e-6)
    if name == "moreau":
        assert ratios.max() >= 0.999 * bound  # the constant is sharp, and the eigenvectors reach it


def climbed(method, x, generator, count, rounds=3):
    """Perturbations that follow the gradient of how far the map moves, by the implicit derivative."""
    at = x + 0.3 * torch.randn(count, D, dtype=torch.float64, generator=generator)
    clean = method.attribute(x, 0)
    for _ in range(rounds):
        leaf = at.detach().requires_grad_()
        maps = method.attribute(leaf, 0, create_graph=True, internal_batch_size=512)
        ratio = (maps - clean).square().sum(1) / (leaf - x).square().sum(1)
        (grad,) = torch.autograd.grad(ratio.sum(), leaf)
        at = at + 0.1 * grad / grad.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return at.detach()


def test_climbing_moves_maps_further_than_chance():
    low, high = SPECTRA["both"]
    forward, _ = score(low, high, seed=7)
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(1, D, dtype=torch.float64, generator=generator)
    method = make("moreau", forward)
    begun = x + 0.3 * torch.randn(100, D, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    ended = climbed(method, x, torch.Generator().manual_seed(5), 100, rounds=10)
    assert moved(method, x, ended).median() > 1.2 * moved(method, x, begun).median()


def test_the_published_constant_does_not_hold_for_sparse_maps():
    """One over rho is what the paper allows a sparse map of a convex score; this one moves five times as far."""
    way = torch.tensor([1.0, 10.0], dtype=torch.float64)
    slope = torch.tensor([5.0, 20.0], dtype=torch.float64)

    def forward(x):
        found = (x @ way).square() / 2 + x @ slope
        return torch.stack([found, torch.zeros_like(found)], 1)

    method = mg.SparseMoreauGrad(forward, rho=1.0, eta=1.0, smoothing=None, solver=mg.ProximalGradient(tol=1e-12))
    x = torch.tensor([[0.0, 0.0], [0.0, 0.01]], dtype=torch.float64)
    maps = method.attribute(x, 0)
    torch.testing.assert_close(maps[0], torch.tensor([2.0, 0.0], dtype=torch.float64))
    assert float((maps[1] - maps[0]).norm() / 0.01) == pytest.approx(5, rel=1e-6)
