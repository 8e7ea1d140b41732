"""What a solved map says of its own accuracy: the relative error follows a law, and `converged` keeps its word."""

import pytest
import torch

import moreaugrad as mg

X = torch.randn(2, 24, generator=torch.Generator().manual_seed(3))
WEIGHTS = torch.randn(24, 24, generator=torch.Generator().manual_seed(4))


def score(v):
    """A sum of cosines: its gradients under noise differ from sample to sample."""
    return (0.4 * v @ WEIGHTS).cos().sum(1)


def maps(seeds, noise_level=0.2, **options):
    made = (mg.MoreauGrad(score, rho=0.05, noise_level=noise_level, seed=seed, **options) for seed in seeds)
    return [each.explain(X) for each in made]


@pytest.mark.parametrize("options", [{}, {"prior": "l1", "sparsity": 0.5}], ids=["dense", "sparse"])
def test_the_relative_error_is_the_spread_of_maps_of_many_seeds(options):
    found = maps(range(40), budget=160, **options)
    drawn = torch.stack([each.map for each in found])
    kept = (drawn != 0).float().mean(0)
    always = kept == 1  # entries that every seed keeps: there the threshold changes nothing
    errors = torch.stack([each.stderr for each in found]).square().mean(0)
    ratio = drawn.var(0)[always].sum() / errors[always].sum()
    assert always.float().mean() > 0.15
    assert 0.7 < float(ratio) < 1.4


@pytest.mark.parametrize("prior", [None, mg.Group(torch.arange(24) // 12)], ids=["dense", "groups"])
def test_two_seeds_agree_as_the_relative_error_says(prior):
    """cosine = 1 - relative_error^2: each map is the truth plus noise of that size, which shrunk groups shrink too."""
    eta = None if prior is None else 0.7 * float(maps([0])[0].map.view(2, 2, 12).norm(dim=2).min())
    found = maps(range(40), budget=160, prior=prior, eta=eta)
    pairs = zip(found[::2], found[1::2], strict=True)
    cosines = torch.stack([torch.cosine_similarity(one.map, two.map) for one, two in pairs]).mean(0)
    errors = torch.stack([each.relative_error for each in found]).square().mean(0)
    torch.testing.assert_close(cosines, 1 - errors, atol=0.05, rtol=0)


def test_a_map_that_another_seed_contradicts_is_not_converged():
    poor, good = (maps([0], noise_level=0.3, budget=budget)[0] for budget in (48, 6400))
    assert (poor.relative_error > 0.3).all()
    assert not poor.converged.any()
    assert (good.relative_error < 0.3).all()
    assert good.converged.all()


def test_without_a_standard_error_a_noisy_residual_must_be_small():
    published = mg.PaperAlgorithm(steps=3)
    found = mg.MoreauGrad(score, rho=0.05, noise_level=0.2, solver=published).explain(X)
    assert found.stderr is None
    assert (found.residual > 0.3 * found.map.norm(dim=1)).all()
    assert not found.converged.any()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("kind", "share"), [("sparse_moreau", 0.05), ("group_sparse_moreau", 0.15)])
def test_the_default_keeps_the_same_share_of_any_network(kind, share, scale):
    x = torch.randn(1, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    options = {"groups": 10} if kind == "group_sparse_moreau" else {}
    found = mg.explain(lambda v: scale * v.flatten(1).sin().cumsum(1)[:, -2:], x, kind, budget=64, **options)
    assert float(found.kept) == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("samples", [6, 80, 100, 128, 130])
@pytest.mark.parametrize("statistic", ["mean", "rms", "votes", "geometric"])
def test_what_does_not_vary_is_known_exactly_however_it_is_divided(samples, statistic):
    """A linear score has one gradient: parts of different lengths must not look like different gradients."""
    a = torch.arange(10, dtype=torch.float64) - 4
    x = torch.randn(2, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    smooth = mg.SmoothGrad(lambda v: v @ a, samples=samples, statistic=statistic)
    solved = mg.MoreauGrad(lambda v: v @ a, 0, budget=samples, samples=2, statistic=statistic)
    votes = mg.SparsifiedSmoothGrad(lambda v: v @ a, samples=samples)
    for method in (smooth, solved, votes):
        found = method.explain(x)
        assert float(found.stderr.max()) <= 1e-12 * float(found.map.abs().max())
