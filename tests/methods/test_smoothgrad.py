"""SmoothGrad and its statistics: closed forms, the same noise through Captum, derivatives, any chunking."""

import math

import pytest
import torch
from captum.attr import Saliency
from torch import nn

import moreaugrad as mg
from moreaugrad.envelope.solvers.at_input import DRAW
from moreaugrad.methods.smoothgrad import SmoothGrad
from moreaugrad.model.smoothing import antithetic

STATISTICS = ["mean", "square", "variance"]
X = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def network(activation=nn.Softplus):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), activation(), nn.Linear(16, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2
    return net


def phi(value):
    return 0.5 * (1 + math.erf(value / 2**0.5))


def copies(x, sigma, samples, seed):
    """The noisy copies of each image, one after the other, as the sets of noise are drawn."""
    sizes = [min(DRAW, samples - start) for start in range(0, samples, DRAW)]
    noise = [antithetic(tuple(x.shape[1:]), size, seed, draw, x) for draw, size in enumerate(sizes)]
    return x[:, None] + sigma * torch.cat(noise)


@pytest.mark.parametrize("samples", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("activation", [nn.Softplus, nn.ReLU])
def test_the_same_noise_through_captum(samples, activation):
    net, seed = network(activation), 5
    noisy = copies(X, 0.3, samples, seed)
    rows = noisy.flatten(0, 1).requires_grad_()
    grads = Saliency(net).attribute(rows, target=2, abs=False).view(noisy.shape)
    wanted = {"mean": grads.mean(1), "square": grads.square().mean(1), "variance": grads.var(1, correction=0)}
    for statistic in STATISTICS:
        method = SmoothGrad(net, mg.Smoothing(sigma=0.3, samples=samples), statistic=statistic, seed=seed)
        torch.testing.assert_close(method.attribute(X, 2), wanted[statistic], rtol=1e-10, atol=1e-13)


def test_linear_scores_do_not_vary():
    a = torch.arange(8, dtype=torch.float64) - 3
    for samples in (2, 64, 200):
        smoothing = mg.Smoothing(samples=samples)
        found = {name: SmoothGrad(lambda v: v @ a, smoothing, statistic=name).attribute(X) for name in STATISTICS}
        torch.testing.assert_close(found["mean"], a.expand(3, 8), rtol=1e-13, atol=0)
        torch.testing.assert_close(found["square"], a.square().expand(3, 8), rtol=1e-13, atol=0)
        assert found["variance"].abs().max() < 1e-25


def test_a_large_constant_gradient_leaves_the_variance_alone():
    """The difference of two large means would lose a small variance in float32."""
    x, smoothing = X.float(), mg.Smoothing(sigma=0.5, samples=300)
    alone = SmoothGrad(lambda v: v.square().sum(1) / 2, smoothing, statistic="variance").attribute(x)
    shifted = SmoothGrad(lambda v: (v.square() / 2 + 4096 * v).sum(1), smoothing, statistic="variance").attribute(x)
    torch.testing.assert_close(shifted, alone, rtol=1e-2, atol=0)


def test_quadratic_scores():
    """grad = A (x + z): its mean is exact by antithetic pairs, its variance sigma^2 diag(A A')."""
    a = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    a, pairs, sigma = a + a.T, 4_000, 0.4
    score = lambda v: ((v @ a) * v).sum(1) / 2  # noqa: E731
    smoothing = mg.Smoothing(sigma=sigma, samples=2 * pairs)
    torch.testing.assert_close(SmoothGrad(score, smoothing).attribute(X), X @ a, rtol=1e-12, atol=1e-12)
    wanted = sigma**2 * (a @ a).diagonal()
    found = SmoothGrad(score, smoothing, statistic="variance").attribute(X)
    assert ((found - wanted).abs() <= 5 * wanted * (2 / pairs) ** 0.5).all()


def test_cubic_scores():
    """grad = 3 (x + z)^2, with known moments."""
    sigma, smoothing = 0.4, mg.Smoothing(sigma=0.4, samples=12_000)
    score = lambda v: v.pow(3).sum(1)  # noqa: E731
    mean = SmoothGrad(score, smoothing).explain(X)
    wanted = 3 * X.square() + 3 * sigma**2
    assert ((mean.map - wanted).abs() <= 5 * mean.stderr).all()
    squares = SmoothGrad(score, smoothing, statistic="square").explain(X)
    fourth = 9 * (X.pow(4) + 6 * X.square() * sigma**2 + 3 * sigma**4)
    assert ((squares.map - fourth).abs() <= 5 * squares.stderr).all()
    assert (squares.stderr < 0.05 * fourth).all()
    variance = SmoothGrad(score, smoothing, statistic="variance").explain(X)
    assert variance.stderr is None
    assert ((variance.map - (fourth - wanted.square())).abs() <= 5 * (squares.stderr + 2 * wanted * mean.stderr)).all()


def test_kinked_scores():
    """grad = w [w.(x + z) > 0], which holds with probability Phi(w.x / (sigma |w|))."""
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x, sigma, samples = torch.tensor([[0.3, 0.1, -0.2]], dtype=torch.float64), 0.5, 20_000
    share = phi(float(x @ w) / (sigma * float(w.norm())))
    error = (share * (1 - share) / samples) ** 0.5
    found = {
        name: SmoothGrad(lambda v: torch.relu(v @ w), mg.Smoothing(sigma=sigma, samples=samples), statistic=name)
        for name in STATISTICS
    }
    maps = {name: method.attribute(x)[0] for name, method in found.items()}
    assert ((maps["mean"] - w * share).abs() <= 5 * error * w.abs()).all()
    assert ((maps["square"] - w.square() * share).abs() <= 5 * error * w.square()).all()
    seen = maps["square"] / w.square()  # the share of copies beyond the kink
    torch.testing.assert_close(maps["variance"], w.square() * seen * (1 - seen), rtol=1e-9, atol=0)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("samples", [3, 64])
def test_the_same_in_any_company_and_any_chunks(statistic, samples):
    method = SmoothGrad(network(nn.ReLU), mg.Smoothing(sigma=0.3, samples=samples), statistic=statistic)
    whole = method.explain(X, [0, 1, 2])
    for rows in (1, 5, 7, 500):
        found = method.explain(X, [0, 1, 2], internal_batch_size=rows)
        torch.testing.assert_close(found.map, whole.map, rtol=1e-10, atol=1e-12)
    for row in range(3):
        found = method.explain(X[row : row + 1], row)
        torch.testing.assert_close(found.map, whole.map[row : row + 1], rtol=1e-10, atol=1e-12)
        assert found.gradients == samples
    assert (method.attribute(X, 0) >= 0).all() or statistic == "mean"


@pytest.mark.parametrize("statistic", STATISTICS)
def test_derivatives_of_the_map(statistic):
    x = X[:2].clone().requires_grad_()
    method = SmoothGrad(network(), mg.Smoothing(sigma=0.3, samples=6), statistic=statistic)
    assert torch.autograd.gradcheck(
        lambda v: method.attribute(v, 1, create_graph=True, internal_batch_size=4), (x,), atol=1e-6
    )


@pytest.mark.parametrize("statistic", STATISTICS)
def test_derivatives_are_finite_where_nothing_varies(statistic):
    """The standard error is zero there, and its square root has no derivative."""
    x = X.clone().requires_grad_()
    score = lambda v: v[:, :2].square().sum(1) + v.sum(1)  # noqa: E731
    found = SmoothGrad(score, mg.Smoothing(sigma=0.3, samples=8), statistic=statistic).attribute(x, create_graph=True)
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert grad.isfinite().all()
    if statistic == "mean":
        torch.testing.assert_close(grad[:, :2], torch.full_like(grad[:, :2], 2.0))


def test_unknown_statistics_are_refused():
    with pytest.raises(ValueError, match=r"statistic must be one of.*got 'vra'"):
        SmoothGrad(network(), statistic="vra")
