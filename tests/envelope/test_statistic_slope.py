"""Derivatives of statistics: of root mean squares by finite differences, of votes by a closed form."""

import math

import pytest
import torch
from torch import nn

import moreaugrad as mg

X = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
W = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
PAIRS = mg.Group(torch.tensor([0, 0, 1, 1, 2, 2]))
FIXED = mg.Smoothing(sigma=0.4, samples=32, fixed=True)


def network():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Softplus(), nn.Linear(12, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2
    return net


def pull(method, x, w):
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad((method.attribute(leaf, 1, create_graph=True) * w).sum(), leaf)
    return found


@pytest.mark.parametrize("statistic", ["rms", "geometric", "square", "log_square"])
@pytest.mark.parametrize("rho", [0, 0.3])
@pytest.mark.parametrize(
    "prior", [{}, {"prior": "l1", "eta": 0.02}, {"prior": PAIRS, "eta": 0.02}], ids=["none", "l1", "pairs"]
)
def test_the_derivative_on_fixed_noise_is_that_of_finite_differences(statistic, rho, prior):
    options = {"smoothing": FIXED, "tau": 0.4, "budget": 32 * 80, "derivative": mg.Implicit(steps=40), **prior}
    method = mg.MoreauGrad(network(), rho, statistic=statistic, **options)
    found = pull(method, X, W)
    for seed in (3, 4):
        way = torch.randn(X.shape, dtype=X.dtype, generator=torch.Generator().manual_seed(seed))
        ends = [(method.attribute(X + side * 1e-5 * way, 1) * W).sum() for side in (1, -1)]
        assert float((found * way).sum()) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-8)


def share_of_first(x, sigma):
    """P(|x_1 + sigma z_1| > |x_2 + sigma z_2|): sum and difference are independent, and both must have one sign."""
    normal = torch.distributions.Normal(0.0, 1.0)
    one, two = ((x[:, 0] + side * x[:, 1]) / (sigma * math.sqrt(2)) for side in (1, -1))
    return normal.cdf(one) * normal.cdf(two) + normal.cdf(-one) * normal.cdf(-two)


def quadratic(v):
    """Its gradient is the input itself, so an entry's vote compares two normal numbers."""
    return v.square().sum(1) / 2


def test_votes_and_their_derivative_are_those_of_a_closed_form():
    sigma = 0.5
    x = torch.tensor([[0.6, 0.2], [-0.3, 0.5], [0.1, -0.9]], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    wanted = share_of_first(leaf, sigma)
    (slope,) = torch.autograd.grad(wanted.sum(), leaf)
    wanted = wanted.detach()
    samples = 2048
    derivative = mg.Covariance(samples=samples)
    solved = mg.MoreauGrad(quadratic, 0, statistic="votes", tau=0.5, sigma=sigma, budget=samples, derivative=derivative)
    smooth = mg.SmoothGrad(quadratic, statistic="votes", tau=0.5, sigma=sigma, samples=samples)
    first = torch.tensor([1.0, 0.0], dtype=x.dtype)
    for method in (solved, smooth):
        at = x.clone().requires_grad_()
        map_ = method.attribute(at, create_graph=True)
        torch.testing.assert_close(
            map_.detach().sum(1), torch.ones(3, dtype=x.dtype), rtol=1e-12, atol=0
        )  # one vote each
        assert float((map_[:, 0].detach() - wanted).abs().max()) < 5 * 0.5 / math.sqrt(samples)
        (found,) = torch.autograd.grad((map_ * first).sum(), at)
        # an estimate of Stein's identity has a standard error of about half of 1 / (sigma sqrt(samples))
        assert float((found - slope).abs().max()) < 5 * 0.5 / (sigma * math.sqrt(samples))
    assert float(slope.abs().amax(1).min()) > 2 * 5 * 0.5 / (sigma * math.sqrt(samples))
