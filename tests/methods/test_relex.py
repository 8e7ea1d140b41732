"""RelEx: known masks of networks that read few entries, the objective by a second way, laws and bad input."""

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.methods.mask_optimisation import generator
from moreaugrad.methods.relex import Relex
from moreaugrad.model.smoothing import antithetic


def linear(weights):
    """Two classes; the log-odds of the second are weights . x."""
    net = nn.Linear(len(weights), 2, bias=False).double().eval().requires_grad_(False)
    net.weight[0], net.weight[1] = 0.0, torch.as_tensor(weights, dtype=torch.float64)
    return net


def network(seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4),
        ).to(dtype).eval()  # fmt: skip


X = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
FAST = {"budget": 48, "steps": 6, "lam1": 1e-3}


def start(x, seed=0):
    drawn = generator(seed, 0, x.device)
    return (torch.rand(x.shape[1:], generator=drawn, dtype=x.dtype) / 100).expand_as(x)


def test_mask_keeps_the_helpful_entries_and_no_other():
    """Entries 0-4 speak for the class, 5-9 against it, and nobody reads the rest."""
    weights = [0.6] * 5 + [-0.6] * 5 + [0.0] * 20
    x = torch.ones(1, 30, dtype=torch.float64)
    x[:, 12] = 1.5  # a range, so that there is noise
    found = Relex(linear(weights), budget=1000, lam1=0.01).attribute(x, 1)
    assert (found[:, :5] > 0.9).all()
    assert (found[:, 5:] < 0.05).all()


def test_a_huge_penalty_empties_the_mask():
    assert not Relex(network(), budget=200, lam1=1e4).attribute(X, 1).any()


@pytest.mark.parametrize("lr", [0.01, 0.5])
def test_a_first_step_has_length_lr(lr):
    """All entries help, so that none is held at a bound."""
    x = torch.full((2, 16), 1.0, dtype=torch.float64)
    found = Relex(linear([1.0] * 16), budget=2, steps=1, lr=lr, lam1=1e-6).attribute(x, 1)
    torch.testing.assert_close((found - start(x)).norm(dim=1), torch.full((2,), lr, dtype=torch.float64))


@pytest.mark.parametrize("lam2", [0.0, 0.5])
def test_steps_follow_the_gradient_of_the_objective(lam2):
    """The objective written out, differentiated by autograd with respect to the mask, and the same three steps."""
    net, sigma, seed = network(), 0.3, 5
    method = Relex(net, budget=3 * 2 * 7, steps=3, lam1=0.02, lam2=lam2, smoothing=mg.Smoothing(sigma=sigma), seed=seed)
    for row in range(len(X)):
        x = X[row : row + 1]
        mask, speed = start(x, seed).clone(), torch.zeros_like(x)
        for step in range(3):
            near = x + sigma * antithetic(tuple(x.shape[1:]), 7, seed, step, x)
            mask.requires_grad_()
            kept, gone = (net(near * m).softmax(1)[:, 2] for m in (mask, 1 - mask))
            loss = (-kept.log() - lam2 * (1 - gone + 1e-7).log()).mean() + 0.02 * mask.sum()
            (grad,) = torch.autograd.grad(loss, mask)
            speed = 0.99 * speed + grad / grad.norm()
            mask = (mask - 0.1 * speed).detach().clamp(0, 1)
        torch.testing.assert_close(method.attribute(x, 2), mask, rtol=1e-9, atol=1e-12)


def test_the_penalty_of_a_photo_is_kept_for_small_images():
    n = X[0].numel()
    explicit = Relex(network(), budget=48, steps=6, lam1=1e-4 * 150528 / n).attribute(X, 1)
    assert torch.equal(Relex(network(), budget=48, steps=6).attribute(X, 1), explicit)
    assert not torch.equal(Relex(network(), budget=48, steps=6, lam1=1e-4).attribute(X, 1), explicit)


@pytest.mark.parametrize(
    ("budget", "steps", "samples", "taken"),
    [(2, 50, 1, 1), (60, 50, 1, 30), (160, 50, 1, 50), (800, 50, 8, 50), (90, 7, 6, 7)],
)
def test_budget_decides_samples_then_steps(budget, steps, samples, taken):
    rows = []

    def counting(v):
        rows.append(len(v))
        return linear([1.0] * 4)(v)

    x = torch.randn(1, 4, dtype=torch.float64)
    method = Relex(counting, budget=budget, steps=steps)
    found = method.explain(x, 1, internal_batch_size=samples)
    assert method.noise.samples == samples
    assert int(found.gradients) == 2 * samples * taken <= budget
    assert sum(rows[1:]) == found.gradients  # the first call is the forward pass that reads the score


def test_bounds_seeds_and_images_alone():
    net = network()
    first = Relex(net, **FAST).explain(X, [0, 1, 2])
    assert first.map.shape == X.shape
    assert (first.map >= 0).all()
    assert (first.map <= 1).all()
    assert torch.equal(first.map, Relex(net, **FAST).attribute(X, [0, 1, 2]))
    assert not torch.equal(first.map, Relex(net, **FAST, seed=1).attribute(X, [0, 1, 2]))
    drawn = Relex(net, **FAST, seed=None).explain(X, 0)
    assert torch.equal(drawn.map, Relex(net, **FAST, seed=drawn.seed).attribute(X, 0))
    for row in range(3):
        alone = Relex(net, **FAST).attribute(X[row : row + 1], row)
        torch.testing.assert_close(alone, first.map[row : row + 1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 100])
def test_any_chunking(rows):
    whole = Relex(network(), **FAST).attribute(X, 1)
    found = Relex(network(), **FAST).attribute(X, 1, internal_batch_size=rows)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-8)


def test_tuples_have_a_mask_each():
    a, b = torch.ones(2, 6, dtype=torch.float64), torch.ones(2, 2, 3, dtype=torch.float64)

    def score(first, second):
        odds = (first.sum(1) - second.sum((1, 2))) / 2
        return torch.stack([0 * odds, odds], 1)

    helps, hinders = Relex(score, budget=200, lam1=0.01).attribute((a, b), 1)
    assert helps.shape == a.shape
    assert hinders.shape == b.shape
    assert (helps > 0.9).all()
    assert (hinders < 0.05).all()


def test_a_constant_or_certain_network_gives_no_nan():
    constant = Relex(lambda v: torch.stack([v.sum(1), v.sum(1)], 1) * 0, budget=64).attribute(X.flatten(1), 0)
    assert constant.isfinite().all()
    certain = Relex(linear([1e4] * 4), budget=64).attribute(torch.ones(2, 4, dtype=torch.float64), 1)
    assert certain.isfinite().all()
    hopeless = Relex(linear([-1e4] * 4), budget=64, lam1=0.0).attribute(torch.ones(2, 4, dtype=torch.float64), 1)
    assert hopeless.isfinite().all()
    flat = Relex(lambda v: torch.stack([v.sum(1), v.sum(1)], 1) * 0, budget=64, lam1=0.0).attribute(X.flatten(1), 0)
    torch.testing.assert_close(flat, start(X.flatten(1)))  # a zero gradient moves nothing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": "logit"}, "score must be 'prob'"),
        ({"score": "logprob"}, "score must be 'prob'"),
        ({"budget": 1}, "budget must be at least 2"),
        ({"steps": 0}, "steps"),
        ({"lr": 0.0}, "lr"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        ({"lam1": -1.0}, "lam1"),
        ({"lam2": -1.0}, "lam2"),
        ({"smoothing": None}, "smoothing"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        Relex(network(), **options)


def test_needs_several_classes():
    with pytest.raises(ValueError, match="several class scores"):
        Relex(lambda v: v.sum(1)).attribute(X.flatten(1))
