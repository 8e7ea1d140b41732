"""Metrics that run a model or an explainer: curves in closed form, and slopes of known maps."""

from functools import partial

import pytest
import torch
from small_maps import maps, net

import moreaugrad as mg
from moreaugrad.metrics.faithfulness import blur, deletion, insertion, pixel_places
from moreaugrad.metrics.sensitivity import local_lipschitz

X = maps(5, (2, 1, 6, 8)).abs()


def linear(weight):
    """p_1 is a linear function of the pixels, by logits log(p_1) and log(1 - p_1)."""

    def model(x):
        p = (x * weight).flatten(1).sum(1).clamp(1e-9, 1 - 1e-9)
        return torch.stack([1 - p, p], 1).log()

    return model


WEIGHT = maps(6, (1, 6, 8)).abs() / 100


def test_a_constant_model_has_its_constant():
    logits = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    for metric in (insertion, deletion):
        found, curve = metric(X, X, lambda v: logits.expand(len(v), 3), 1, return_curve=True)
        assert found.tolist() == pytest.approx([float(logits.softmax(0)[1])] * 2)
        assert curve.shape == (2, 7)


def test_curve_by_hand():
    """Pixels go one by one, the largest first: p falls by weight times value."""
    model, saliency = linear(WEIGHT), X * WEIGHT
    found, curve = deletion(saliency, X, model, 1, step=1, return_curve=True)
    shares = saliency.flatten(1).sort(1, descending=True).values
    full = shares.sum(1, keepdim=True)
    wanted = torch.cat([full, full - shares.cumsum(1)], 1).clamp(min=1e-9)
    torch.testing.assert_close(curve, wanted, rtol=0, atol=2e-9)
    torch.testing.assert_close(found, torch.trapezoid(wanted, dx=1 / 48), rtol=0, atol=2e-9)
    appear = insertion(saliency, X, model, 1, step=1, baseline=0.0, return_curve=True)[1]
    torch.testing.assert_close(appear, full - wanted, rtol=0, atol=3e-9)


def test_ends_and_short_last_step():
    model = net()
    x = maps(0)
    curve = deletion(maps(1), x, model, 2, step=50, return_curve=True)[1]  # 168 pixels: 50, 100, 150, 168
    assert curve.shape == (3, 5)
    torch.testing.assert_close(curve[:, 0], model(x).softmax(1)[:, 2].detach())
    torch.testing.assert_close(curve[:, -1], model(torch.zeros_like(x)).softmax(1)[:, 2].detach())
    curve = insertion(maps(1), x, model, 2, return_curve=True)[1]
    assert curve.shape == (3, 13)  # twelve rows of a width each
    torch.testing.assert_close(curve[:, 0], model(blur(x)).softmax(1)[:, 2].detach())
    torch.testing.assert_close(curve[:, -1], model(x).softmax(1)[:, 2].detach())


def test_the_true_order_beats_a_random_one():
    model, saliency = linear(WEIGHT), X * WEIGHT
    for seed in range(5):
        other = maps(seed, X.shape)
        assert (deletion(saliency, X, model, 1, step=1) < deletion(other, X, model, 1, step=1)).all()
        assert (insertion(saliency, X, model, 1, step=1) > insertion(other, X, model, 1, step=1)).all()


def test_channels_are_summed_in_size_or_signed():
    x, model = maps(0), net()
    saliency = maps(1)
    plain = deletion(saliency, x, model, 0)
    torch.testing.assert_close(deletion(saliency.abs().sum(1), x, model, 0), plain)
    torch.testing.assert_close(deletion(saliency.abs().sum(1, keepdim=True), x, model, 0), plain)
    signed = deletion(saliency, x, model, 0, signed=True)
    torch.testing.assert_close(deletion(saliency.sum(1) - saliency.sum(1).min(), x, model, 0), signed)
    assert not torch.equal(plain, signed)


def test_ties_are_averaged_over_seeds():
    x, model = maps(0), net()
    sparse = torch.where(maps(1) > 1.5, maps(1), 0)
    each = [deletion(sparse, x, model, 0, seeds=(seed,)) for seed in range(3)]
    assert not torch.equal(each[0], each[1])
    torch.testing.assert_close(deletion(sparse, x, model, 0), torch.stack(each).mean(0))
    distinct = [deletion(maps(1), x, model, 0, seeds=(seed,)) for seed in range(2)]
    assert torch.equal(*distinct)


def test_places_respect_sizes_and_mix_equals():
    order = torch.tensor([[1.0, 3, 1, 2, 1], [0, 0, 0, 0, 0]])
    first = [tuple(pixel_places(order, seed)[0].tolist()) for seed in range(40)]
    assert {(place[1], place[3]) for place in first} == {(0, 1)}
    assert {tuple(sorted(place)) for place in first} == {(0, 1, 2, 3, 4)}
    assert len({(place[0], place[2], place[4]) for place in first}) == 6
    alone = torch.cat([pixel_places(order[i : i + 1], 7) for i in range(2)])
    assert torch.equal(pixel_places(order, 7), alone)


def test_rows_that_reach_the_model_are_bounded_and_not_wasted():
    rows = []

    def model(v):
        assert not torch.is_grad_enabled()
        rows.append(len(v))
        return linear(WEIGHT)(v)

    deletion(X, X, model, 1, internal_batch_size=5)
    assert max(rows) <= 5
    assert sum(rows) == 1 + 2 * 7  # distinct pixels need one order; one row gave the number of classes
    torch.testing.assert_close(
        deletion(X, X, model, 1, internal_batch_size=1), deletion(X, X, model, 1, internal_batch_size=999)
    )


def test_targets_in_every_form():
    x, model, saliency = maps(0), net(), maps(1)
    wanted = [deletion(saliency[i : i + 1], x[i : i + 1], model, c) for i, c in enumerate((2, 0, 1))]
    for target in ([2, 0, 1], torch.tensor([2, 0, 1]), [(2,), (0,), (1,)], torch.tensor([-1, 0, -2])):
        torch.testing.assert_close(deletion(saliency, x, model, target), torch.cat(wanted))
    predicted = model(x).argmax(1)
    torch.testing.assert_close(insertion(saliency, x, model), insertion(saliency, x, model, predicted))


def test_baselines():
    x, model, saliency = maps(0), net(), maps(1)
    for baseline in (0.5, torch.full_like(x, 0.5), torch.full_like(x[0], 0.5)):
        torch.testing.assert_close(
            deletion(saliency, x, model, 0, baseline=baseline), deletion(saliency, x, model, 0, baseline=0.5)
        )
    end = deletion(saliency, x, model, 0, baseline="blur", return_curve=True)[1][:, -1]
    torch.testing.assert_close(end, model(blur(x)).softmax(1)[:, 0].detach())


def test_blur_is_a_gaussian_window():
    constant = torch.full((1, 2, 9, 30), 3.0)
    torch.testing.assert_close(blur(constant), constant)
    dot = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    dot[0, 0, 20, 20] = 1
    found = blur(dot)[0, 0]
    assert int((found > 0).sum()) == 121
    assert float(found.sum()) == pytest.approx(1)
    assert float(found[20, 25] / found[20, 20]) == pytest.approx(torch.tensor(-0.5).exp().item())


@pytest.mark.parametrize(
    ("change", "error", "kind"),
    [
        ({"maps": torch.zeros(3, 5, 5)}, "one number or more per pixel", ValueError),
        ({"x": torch.zeros(3, 168)}, r"images \(N, C, H, W\)", ValueError),
        ({"target": 3}, "target must be below 3", ValueError),
        ({"target": [0, 1]}, "2 targets for 3 images", ValueError),
        ({"model": "resnet"}, "model must be a function", TypeError),
        ({"step": 0}, "step must be at least 1", ValueError),
        ({"steps": 4}, "Did you mean 'step'", ValueError),
        ({"seeds": 3}, "seeds must be a tuple", TypeError),
        ({"seeds": ()}, "seeds must be a tuple", TypeError),
        ({"baseline": "noise"}, "baseline must be one of", ValueError),
        ({"internal_batch_size": 0}, "at least 1", ValueError),
        ({"return_curve": 1}, "return_curve must be", TypeError),
        ({"model": lambda v: v.sum((1, 2, 3))}, r"several class scores", ValueError),
    ],
)
def test_wrong_walks_are_refused(change, error, kind):
    given = {"maps": maps(0), "x": maps(1), "model": net(), "target": 0, **change}
    with pytest.raises(kind, match=error):
        deletion(**given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slope_of_linear_maps(dtype):
    x = maps(0).to(dtype)
    for slope in (0.0, 1.0, -2.5):
        found = local_lipschitz(lambda v, slope=slope: slope * v + 1, x)
        torch.testing.assert_close(found, torch.full((3,), abs(slope), dtype=dtype), rtol=1e-5, atol=1e-6)
    stretch = torch.linspace(0, 3, 168, dtype=dtype).view(12, 14)
    few, many = (local_lipschitz(lambda v: v * stretch, x, samples=n) for n in (2, 60))
    assert (few <= many).all()
    assert (many <= 3).all()
    assert (many > 1.7).all()  # the root mean square of the stretch is 1.73: some direction is above it


def test_slope_is_taken_at_the_radius_and_seeded():
    step = lambda v: (v.flatten(1).norm(dim=1, keepdim=True) > 1).to(v.dtype)  # noqa: E731
    x = torch.zeros(1, 9)
    assert float(local_lipschitz(step, x, radius=0.9)) == 0
    assert float(local_lipschitz(step, x, radius=2.0)) == pytest.approx(0.5)
    cubes = partial(local_lipschitz, lambda v: v**3, maps(0), radius=1.0)
    assert torch.equal(cubes(), cubes())
    assert not torch.equal(cubes(), cubes(seed=1))


def test_slope_of_methods_falls_with_rho():
    model, x = net(), maps(0)
    slopes = [
        local_lipschitz(lambda v, rho=rho: mg.MoreauGrad(model, rho=rho, smoothing=None, budget=60).attribute(v, 1), x)
        for rho in (0.01, 300.0)
    ]
    assert (slopes[1] < slopes[0]).all()


def test_undefined_and_wrong_explainers():
    x = maps(0)
    spoiled = x.clone()
    spoiled[1] = 0
    assert local_lipschitz(lambda v: 1 / (v - v.clone()) if v.equal(x) else v, x).isnan().all()
    assert local_lipschitz(lambda v: v / (spoiled != 0), x).isnan().tolist() == [False, True, False]
    with pytest.raises(TypeError, match="function of a batch"):
        local_lipschitz(x, x)
    with pytest.raises(TypeError, match=r"return its \.map"):
        local_lipschitz(lambda v: mg.Gradient(net()).explain(v), x)
    with pytest.raises(ValueError, match=r"maps of shape \(3, '...'\), got \(1, 2\)"):
        local_lipschitz(lambda v: torch.zeros(1, 2), x)
    with pytest.raises(ValueError, match="radius must be a positive"):
        local_lipschitz(lambda v: v, x, radius=0)
