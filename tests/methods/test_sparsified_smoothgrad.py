"""Sparsified SmoothGrad: a slow second derivation, exact cases, ties, bounds, derivatives."""

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad, sparsify
from moreaugrad.model.statistics import floor_share, largest
from moreaugrad.model.smoothing import antithetic

VARIANTS = ["basic", "relaxed", "scaled"]
X = torch.randn(3, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
N = 40


def network(activation=nn.Softplus):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(N, 16), activation(), nn.Linear(16, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2
    return net


def slow(grad, variant, tau, gamma):
    """The map of one copy, by sorting its entries one after the other."""
    sizes = grad.abs().flatten().tolist()
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    keep = len(sizes) if variant == "scaled" else int(tau * len(sizes) + 1e-9)
    top = sizes[order[0 if variant == "scaled" else max(1, int(gamma * len(sizes) + 1e-9)) - 1]]
    found = torch.zeros(len(sizes), dtype=grad.dtype)
    for i in order[:keep]:
        found[i] = 1.0 if variant == "basic" else (min(sizes[i], top) / top if top > 0 else 0.0)
    return found.view(grad.shape)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("tau", "gamma"), [(0.1, 0.01), (0.5, 0.2), (0.29, 0.29), (1.0, 0.0)])
def test_a_second_derivation(variant, tau, gamma):
    net, samples, sigma = network(nn.ReLU), 24, 0.4
    noise = antithetic(tuple(X.shape[1:]), samples, 3, 0, X)
    wanted = torch.zeros_like(X)
    for row in range(3):
        for z in noise:
            point = (X[row] + sigma * z)[None].requires_grad_()
            (grad,) = torch.autograd.grad(net(point)[0, 2], point)
            wanted[row] += slow(grad[0], variant, tau, gamma) / samples
    method = SparsifiedSmoothGrad(
        net, variant, tau, gamma, smoothing=mg.Smoothing(sigma=sigma, samples=samples), seed=3
    )
    torch.testing.assert_close(method.attribute(X, 2), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_linear_score_has_the_map_of_its_weights_and_no_error(variant):
    a = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    found = SparsifiedSmoothGrad(lambda v: (v * a).sum((1, 2, 3)), variant).explain(X)
    torch.testing.assert_close(found.map, slow(a, variant, 0.1, 0.01).expand(X.shape), rtol=1e-13, atol=0)
    assert found.stderr.abs().max() < 1e-14
    assert (found.gradients == 256).all()


@pytest.mark.parametrize("tau", [0.025, 0.1, 0.29, 0.99, 1.0])
def test_the_mean_of_a_basic_map_is_the_share_kept(tau):
    method = SparsifiedSmoothGrad(network(nn.ReLU), "basic", tau, smoothing=mg.Smoothing(samples=20))
    wanted = torch.full((3,), int(tau * N) / N, dtype=torch.float64)
    torch.testing.assert_close(method.attribute(X, 0).mean((1, 2, 3)), wanted, rtol=1e-12, atol=0)


def test_relaxed_lies_between_basic_and_scaled():
    def maps(*options):
        return SparsifiedSmoothGrad(network(), *options, smoothing=mg.Smoothing(samples=16)).attribute(X, 1)

    torch.testing.assert_close(maps("relaxed", 0.2, 0.2), maps("basic", 0.2), rtol=0, atol=1e-15)
    torch.testing.assert_close(maps("relaxed", 1.0, 0.0), maps("scaled"), rtol=0, atol=1e-15)
    assert (maps("relaxed", 0.2, 0.05) <= maps("basic", 0.2) + 1e-15).all()


def test_exactly_as_many_as_asked_are_kept_and_ties_go_to_the_first():
    sizes = torch.tensor([[[1.0, 3, 2, 2, 0, 2], [5, 5, 5, 5, 5, 5], [0, 0, 0, 0, 0, 0]]])
    kept = largest(sizes, 3).int()[0].tolist()
    assert kept == [[0, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    many = torch.randint(0, 4, (2, 50, 31), generator=torch.Generator().manual_seed(0)).float()
    for keep in range(1, 32):
        found = largest(many, keep)
        assert (found.sum(2) == keep).all()
        assert torch.equal(found, largest(many.flip(1), keep).flip(1))


def test_a_gradient_of_zero_gives_no_nan():
    flat = torch.zeros(2, 3, 10, dtype=torch.float64)
    flat[1, 0, 4] = -2.0  # the only change of its copy
    assert not sparsify(flat, 3, 2).any()
    assert sparsify(flat, 3, 1).nonzero().tolist() == [[1, 0, 4]]
    assert sparsify(flat, 3, None).sum() == 2 * 3 * 3
    for variant in VARIANTS:
        found = SparsifiedSmoothGrad(lambda v: 0 * v.sum((1, 2, 3)), variant).explain(X)
        assert found.map.isfinite().all()
        assert found.map.any() == (variant == "basic")


@pytest.mark.parametrize(
    ("share", "n", "kept"), [(0.1, 30, 3), (0.29, 100, 29), (0.1, 3072, 307), (0.01, 150528, 1505)]
)
def test_shares_are_rounded_down_as_they_are_written(share, n, kept):
    assert floor_share(share, n) == kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_maps_stay_between_zero_and_one(variant, dtype):
    for samples in (7, 40, 130):
        smoothing = mg.Smoothing(noise_level=0.02, samples=samples)
        found = SparsifiedSmoothGrad(network().to(dtype), variant, smoothing=smoothing).attribute(X.to(dtype), 1)
        assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_in_any_company_and_any_chunks(variant):
    method = SparsifiedSmoothGrad(network(nn.ReLU), variant, smoothing=mg.Smoothing(samples=40))
    whole = method.explain(X, [0, 1, 2])
    for rows in (1, 7, 500):
        found = method.explain(X, [0, 1, 2], internal_batch_size=rows)
        torch.testing.assert_close(found.map, whole.map, rtol=0, atol=1e-10)
    for row in range(3):
        found = method.explain(X[row : row + 1], row)
        torch.testing.assert_close(found.map, whole.map[row : row + 1], rtol=0, atol=1e-10)
        torch.testing.assert_close(found.stderr, whole.stderr[row : row + 1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_error_is_that_of_the_mean(variant):
    """The spread over seeds is what the standard error says of a single one."""
    runs = [
        SparsifiedSmoothGrad(network(), variant, 0.3, smoothing=mg.Smoothing(sigma=1.0, samples=64), seed=s)
        for s in range(40)
    ]
    found = [run.explain(X, 1) for run in runs]
    spread = torch.stack([each.map for each in found]).var(0).mean()
    told = torch.stack([each.stderr for each in found]).square().mean()
    assert 0.8 < float(told / spread) < 1.25


def test_tuples_are_ranked_as_one():
    a, b = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 2, 2, dtype=torch.float64)
    score = lambda v, w: 10 * v.sum(1) + w.sum((1, 2))  # noqa: E731
    first, second = SparsifiedSmoothGrad(score, "basic", 0.6).attribute((a, b))
    torch.testing.assert_close(first, torch.ones_like(a))
    assert not second.any()


@pytest.mark.parametrize("variant", ["relaxed", "scaled"])
def test_derivatives_of_the_map(variant):
    x = X[:1].clone().requires_grad_()
    smoothing = mg.Smoothing(sigma=0.3, samples=4)
    method = SparsifiedSmoothGrad(network(), variant, 0.5, 0.1, smoothing=smoothing)
    assert torch.autograd.gradcheck(
        lambda v: method.attribute(v, 1, create_graph=True, internal_batch_size=3), (x,), atol=1e-6
    )
    torch.testing.assert_close(method.attribute(x, 1, create_graph=True).detach(), method.attribute(x, 1))


def test_a_map_of_zeros_and_ones_has_no_derivative():
    with pytest.raises(ValueError, match="create_graph=True must be left out"):
        SparsifiedSmoothGrad(network(), "basic").attribute(X, 1, create_graph=True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"variant": "relax"}, ValueError, "variant must be one of.*Did you mean 'relaxed'"),
        ({"tau": 0.0}, ValueError, r"tau must be in \(0, 1\]"),
        ({"tau": "all"}, TypeError, "tau must be a number"),
        ({"gamma": -0.1}, ValueError, r"gamma must be in \[0, 1\]"),
        ({"gamma": 0.2}, ValueError, "gamma must not exceed tau"),
        ({"smoothing": None}, ValueError, "smoothing must be a Smoothing"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        SparsifiedSmoothGrad(network(), **options)


def test_a_share_below_one_entry_is_refused():
    with pytest.raises(ValueError, match=r"tau must keep at least one entry.*take tau=0\.025"):
        SparsifiedSmoothGrad(network(), "basic", 0.02).attribute(X, 1)
