"""The published objective of an attack on MoreauGrad: the noise-free gradient at the solution, which is held fixed."""

import pytest
import torch
from attacked_networks import Quadratic, convolutional, pictures
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.noise_free import NoiseFree

OPTIONS = {"smoothing": mg.Smoothing(0.2, samples=4), "budget": 16, "seed": 0}
SPARSE = {"eta": 0.002, **OPTIONS}


def displaced_gradient(net, x, delta, target, graph=False):
    """grad f(x + delta) where delta is not zero, by autograd alone."""
    scores = net(x + delta).gather(1, target[:, None]).sum()
    (grad,) = torch.autograd.grad(scores, x, create_graph=graph)
    return grad * (delta != 0)


@pytest.mark.parametrize(
    ("kind", "options"), [(mg.MoreauGrad, OPTIONS), (mg.SparseMoreauGrad, SPARSE)], ids=["plain", "sparse"]
)
def test_steps_are_those_of_the_definition(kind, options):
    """Against a loop over the definition: solve, hold the solution, differentiate the noise-free gradient, step."""
    net, x = convolutional(nn.Softplus).double(), pictures(2)
    method, epsilon, length, k = kind(net, **options), 1.0, 0.02, 30
    target = net(x).argmax(1)
    clean = method.attribute(x, target=target)
    top = torch.zeros_like(clean).flatten(1)
    top.scatter_(1, clean.abs().flatten(1).topk(k).indices, 1.0)
    top = (top.view_as(clean) * (clean != 0)).to(clean)

    def measure(at, graph=False):
        leaf = at.detach().requires_grad_()
        delta = method.explain(at, target=target).delta
        size = displaced_gradient(net, leaf, delta, target, graph).abs()
        return leaf, (size * top).flatten(1).sum(1) / size.flatten(1).sum(1)

    at, values = x, []
    for _ in range(3):
        leaf, value = measure(at, graph=True)
        values.append(value.detach())
        (grad,) = torch.autograd.grad(value.sum(), leaf)
        moved = at - length * grad.sign() - x
        size = moved.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        at = x + moved * (epsilon / size).clamp(max=1)
    values.append(measure(at)[1].detach())
    found = mg.TopK(method, epsilon, k=k, noise_free=True, rule="sign", step_size=length, steps=3).perturb(x)
    torch.testing.assert_close(found.trace[0], values[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.objective, torch.stack(values).min(0).values, rtol=1e-9, atol=0)
    assert bool((found.objective < values[0]).any())


def test_on_a_quadratic_the_map_is_known():
    """f = d x^2 / 2 without noise and prior: delta = -rho d x/(1 + rho d), and the gradient there d x/(1 + rho d)."""
    d = torch.linspace(0.5, 2.0, 12, dtype=torch.float64)
    x = pictures(1).flatten()[:12].view(1, 12)
    method = mg.MoreauGrad(Quadratic(d), rho=0.5, smoothing=None, budget=4000)
    seen = NoiseFree(method).attribute(x, torch.tensor([0]))
    torch.testing.assert_close(seen, d * x / (1 + 0.5 * d), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "came"),
    [
        (mg.SmoothGrad, "got SmoothGrad"),
        (lambda net: mg.MoreauGrad(net, statistic="rms"), "got MoreauGrad with statistic='rms'"),
        (lambda net: mg.MoreauGrad(net, rho=0), "got MoreauGrad with .* rho=0"),
    ],
)
def test_methods_without_a_displacement_are_refused(make, came):
    with pytest.raises(ValueError, match=f"noise_free=True .* {came}"):
        mg.TopK(make(convolutional()), 1.0, noise_free=True)


def test_a_flag_is_a_flag():
    with pytest.raises(TypeError, match="noise_free must be True or False"):
        mg.TopK(mg.MoreauGrad(convolutional()), 1.0, noise_free=1)
