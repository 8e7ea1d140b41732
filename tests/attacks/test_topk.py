"""The top-k attack, and by its example what holds for all attacks on maps: closed forms, boxes, slopes, bad input."""

import logging

import pytest
import torch
from attacked_networks import Boxed, Quadratic, Seeing, convolutional, gradient, least_share, pictures
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.descent import distance
from moreaugrad.attacks.topk import TopK, largest_entries

N = 12
D = torch.linspace(0.5, 2.0, N, dtype=torch.float64) * torch.tensor([1.0, -1.0] * (N // 2), dtype=torch.float64)
X = torch.tensor(
    [
        [1.9, -1.2, 2.4, -1.4, 1.1, 2.2, -1.6, 1.3, -2.1, 1.7, 1.5, -1.8],
        [-1.1, 2.3, 1.6, 1.9, -2.4, 1.2, 1.4, -1.7, 1.3, -1.5, 2.1, 1.8],
    ],
    dtype=torch.float64,
)


def attack(model=None, epsilon=0.5, **options):
    return TopK(mg.Gradient(Quadratic(D) if model is None else model), epsilon, **options)


def share(maps, top):
    """D by its definition, in plain numbers."""
    found = []
    for row, mask in zip(maps.flatten(1).abs().tolist(), top.tolist(), strict=True):
        found.append(sum(v for v, m in zip(row, mask, strict=True) if m) / sum(row))
    return torch.tensor(found, dtype=maps.dtype)


def top_mask(maps, k):
    """The k largest of each row, by sorting."""
    mask = torch.zeros(len(maps), maps[0].numel(), dtype=torch.bool)
    for row, values in enumerate(maps.flatten(1).abs().tolist()):
        mask[row, sorted(range(len(values)), key=lambda i: -values[i])[:k]] = True
    return mask


# ---- closed forms


def test_linear_model_cannot_be_attacked(caplog):
    """Its map is the same everywhere, and no rounding makes that a success."""
    for method in (mg.Gradient, mg.SmoothGrad, mg.IntegratedGradients):
        linear = nn.Sequential(nn.Linear(N, 20), nn.BatchNorm1d(20), nn.Linear(20, 3)).eval()
        found = TopK(method(linear), 1.0, steps=5).perturb(X.float(), 1)
        if method is not mg.IntegratedGradients:  # whose map is gradient times the input
            assert torch.equal(found.trace, found.trace[:1].expand_as(found.trace))
            assert not found.success.any()
            assert torch.equal(found.x, X.float())
            assert "slope of the attack is zero" in caplog.text
        caplog.clear()


def test_quadratic_optimum_lies_on_the_sphere():
    top = top_mask(D * X, 4)
    found = attack(k=4, steps=60).perturb(X)
    for row in range(2):
        wanted = least_share(D.abs(), X[row].abs(), top[row], 0.5)
        assert float(found.objective[row]) >= wanted - 1e-12
        assert float(found.objective[row]) - wanted < 1e-3 * (float(found.trace[0, row]) - wanted)
    torch.testing.assert_close(found.l2, torch.full((2,), 0.5, dtype=torch.float64), rtol=1e-9, atol=0)
    torch.testing.assert_close(found.objective, share(D * found.x, top))


@pytest.mark.parametrize("options", [{"rule": "sign"}, {"rule": "gradient"}])
def test_quadratic_falls_at_every_small_step(options):
    """From the input itself, by steps too short to reach the sphere: every single one goes down."""
    found = attack(k=4, steps=30, step_size=1e-3, **options).perturb(X)
    assert (found.trace[2:] < found.trace[1:-1]).all()
    assert (found.l2 < 0.5).all()


def test_largest_change_reaches_its_corner_exactly():
    """linf: -epsilon sign(x) on the top entries, +epsilon sign(x) elsewhere is the optimum of the quadratic."""
    top = top_mask(D * X, 4)
    found = attack(epsilon=0.3, norm="linf", k=4, steps=4).perturb(X)
    wanted = X + 0.3 * torch.where(top, -X.sign(), X.sign())
    torch.testing.assert_close(found.x, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.objective, share(D * wanted, top))


def test_published_steps_are_taken_one_by_one():
    """x <- project(x - a sign(grad D)) in l2, against a loop over the definition."""
    top, epsilon, length = top_mask(D * X, 4), 0.4, 0.05
    at = X.clone()
    wanted = share(D * X, top)
    for _ in range(7):
        leaf = at.clone().requires_grad_()
        size = (D * leaf).abs()
        (grad,) = torch.autograd.grad(((size * top).sum(1) / size.sum(1)).sum(), leaf)
        delta = at - length * grad.sign() - X
        at = X + delta * (epsilon / delta.norm(dim=1, keepdim=True)).clamp(max=1)
        wanted = wanted.minimum(share(D * at, top))
    found = attack(epsilon=epsilon, k=4, rule="sign", step_size=length, steps=7).perturb(X)
    torch.testing.assert_close(found.objective, wanted, rtol=1e-10, atol=0)


def test_objective_and_success_are_those_of_the_definition():
    net, x = convolutional().double(), pictures()
    found = TopK(mg.Gradient(net), 1.0, k=20, steps=5).perturb(x)
    top = top_mask(gradient(net, x, found.target), 20)
    torch.testing.assert_close(found.trace[0], share(gradient(net, x, found.target), top))
    torch.testing.assert_close(found.objective, share(gradient(net, found.x, found.target), top))
    assert torch.equal(found.success, found.objective < found.trace[0])
    assert found.success.all()


def test_per_pixel_sums_the_channels_first():
    net, x = convolutional(nn.Softplus).double(), pictures()
    found = TopK(mg.Gradient(net), 1.0, k=10, per_pixel=True).perturb(x)
    clean, after = (gradient(net, at, found.target).abs().sum(1) for at in (x, found.x))
    top = top_mask(clean, 10)
    torch.testing.assert_close(found.trace[0], share(clean, top))
    torch.testing.assert_close(found.objective, share(after, top))


def test_which_entries_are_the_largest():
    size = torch.tensor([[3.0, 0.0, 3.0, 1.0, 0.0, 2.0, 5.0, 0.0, 0.0, 4.0]])
    alive = [6, 9, 0, 2, 5, 3]
    for k, count in ((1, 1), (2, 2), (3, 3), (9, 6), (0.2, 2), (0.01, 1), (1.0, 6), (None, 2)):
        assert largest_entries(size, k)[0].nonzero().flatten().tolist() == sorted(alive[:count]), k
    assert largest_entries(torch.zeros(2, 5), None).sum() == 0


# ---- slopes


def test_kinks_without_a_surrogate_have_no_slope_and_a_warning(caplog):
    """One layer of ReLU: the map is constant wherever the pattern of the ReLUs is."""
    net, x = convolutional().double(), pictures()
    found = TopK(mg.Gradient(net), 1e-6, k=20, steps=5, surrogate=None).perturb(x)
    assert "the slope of the attack is zero everywhere" in caplog.text
    assert "softplus" in caplog.text
    assert not found.success.any()
    caplog.clear()
    TopK(mg.Gradient(net), 1.0, k=20, steps=5).perturb(x)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_softplus_copy_lends_the_slope_and_is_never_the_judge():
    net, x = convolutional().double(), pictures(4)
    with_copy = TopK(mg.Gradient(net), 1.0, k=20, steps=5, beta=5.0).perturb(x)
    top = top_mask(gradient(net, x, with_copy.target), 20)
    torch.testing.assert_close(with_copy.objective, share(gradient(net, with_copy.x, with_copy.target), top))
    assert torch.equal(net(with_copy.x).argmax(1) == net(x).argmax(1), with_copy.kept)
    assert with_copy.success.all()
    own = TopK(mg.Gradient(net), 1.0, k=20, steps=5, surrogate=mg.with_softplus(net, 5.0)).perturb(x)
    assert torch.equal(own.x, with_copy.x)


def test_smooth_networks_are_attacked_as_they_are():
    net, x = convolutional(nn.Softplus).double(), pictures()
    plain = TopK(mg.Gradient(net), 1.0, k=20, steps=5, surrogate=None).perturb(x)
    assert torch.equal(TopK(mg.Gradient(net), 1.0, k=20, steps=5).perturb(x).x, plain.x)
    assert plain.success.all()


def test_functional_kinks_are_refused_with_a_way_out():
    class Functional(nn.Module):
        def forward(self, v):
            return torch.relu(v.flatten(1))[:, :3]

    with pytest.raises(ValueError, match=r"use nn\.ReLU"):
        TopK(mg.Gradient(Functional().eval()), 1.0).perturb(pictures())


def test_gradient_steps_beat_sign_steps_on_average():
    net, x = convolutional().double(), pictures(6)
    by_sign, by_gradient = (
        TopK(mg.Gradient(net), 1.0, k=48, rule=rule, steps=10).perturb(x) for rule in ("sign", "gradient")
    )
    assert by_gradient.objective.mean() <= by_sign.objective.mean()


def test_restarts_only_help_and_go_on_from_other_points():
    net, x = convolutional().double(), pictures()
    few, more = (TopK(mg.Gradient(net), 1.0, k=20, steps=3, restarts=n).perturb(x) for n in (1, 4))
    assert (more.objective <= few.objective).all()
    assert (more.objective < few.objective).any()
    torch.testing.assert_close(more.trace[: len(few.trace) - 1], few.trace[:-1])


def test_noisy_methods_are_attacked_on_fixed_noise():
    """A method that draws fresh noise at each call would never give the same number twice."""
    net, x = convolutional(nn.Softplus).double(), pictures(2)
    smoothing = mg.Smoothing(samples=4)
    found = TopK(mg.SmoothGrad(net, smoothing, seed=None), 1.0, k=20, steps=4).perturb(x)
    assert found.success.all()
    fixed = TopK(mg.SmoothGrad(net, smoothing, seed=7), 1.0, k=20, steps=4).perturb(x)
    maps = mg.SmoothGrad(net, smoothing, seed=7)
    top = top_mask(maps.attribute(x, fixed.target), 20)
    torch.testing.assert_close(fixed.objective, share(maps.attribute(fixed.x, fixed.target), top))


def test_gradients_are_counted():
    """Each map that the model is asked for is one; the map and its derivative at the surrogate are three."""
    net, x = convolutional(nn.Softplus).double(), pictures(1)
    maps = []
    seeing = Seeing(net, lambda v: maps.append(len(v)) if v.requires_grad else None)
    other = convolutional(nn.Softplus, seed=3).double()
    found = TopK(mg.Gradient(seeing), 1.0, k=20, steps=5, restarts=2, surrogate=other).perturb(x)
    assert sum(maps) == 1 + 1 + 2 * 6  # the clean map, the start, and every point
    assert found.gradients.tolist() == [sum(maps) + 3 * 5 * 2]


def test_attention_is_attacked():
    """Fast attention has no second derivative: the plain one is taken."""
    from layer_networks import transformer

    net, x = transformer(), pictures(1)
    assert TopK(mg.Gradient(net), 0.5, k=20, steps=3).perturb(x).success.all()


# ---- which points are valid


def test_misclassified_images_are_attacked_by_what_the_model_says():
    net, x = convolutional().double(), pictures(4)
    said = net(x).argmax(1)
    wrong = (said + 1) % 5
    found = TopK(mg.Gradient(net), 1.0, k=20, steps=5).perturb(x, wrong)
    assert torch.equal(found.target, wrong)
    assert torch.equal(net(found.x).argmax(1), said)
    assert found.success.all()
    top = top_mask(gradient(net, x, wrong), 20)
    torch.testing.assert_close(found.objective, share(gradient(net, found.x, wrong), top))


def test_where_every_step_changes_the_class_the_input_comes_back():
    x = pictures(2)

    class Nervous(nn.Module):
        """Names class 0 at x alone, and class 1, whose map could well be attacked, everywhere else."""

        def forward(self, v):
            far = (v[:, None] - x).square().flatten(2).sum(2).amin(1)
            other = v.pow(4).flatten(1).sum(1)
            return torch.stack([other + 1e-6 - 1e6 * far, other], 1)

    for options in ({}, {"rule": "sign"}, {"norm": "linf"}, {"restarts": 2}):
        found = TopK(mg.Gradient(Nervous().eval()), 0.1, k=5, steps=3, **options).perturb(x, 1)
        assert not found.success.any()
        assert found.kept.all()
        assert torch.equal(found.x, x)
        assert torch.equal(found.objective, found.trace[0])


def test_zero_maps_stay(caplog):
    class Constant(nn.Module):
        def forward(self, v):
            return torch.stack([v.flatten(1).sum(1) * 0 + 1, v.flatten(1).sum(1) * 0], 1)

    x = pictures(2)
    for options in ({}, {"k": 5}, {"rule": "sign"}, {"norm": "linf"}):
        found = TopK(mg.Gradient(Constant().eval()), 1.0, steps=3, **options).perturb(x)
        assert torch.equal(found.x, x)
        assert not found.success.any()
        assert found.objective.eq(0).all()
        assert "slope of the attack is zero" in caplog.text


# ---- the box


@pytest.mark.parametrize(
    ("norm", "rule"), [("l2", "sign"), ("l2", "gradient"), ("l2", None), ("linf", "sign"), ("linf", None)]
)
def test_box_of_the_model_is_kept(norm, rule):
    x = pictures().clamp(-1, 1)
    low = torch.tensor([-1.0, -1.2, -1.5]).view(1, 3, 1, 1)
    net = Boxed(convolutional().double(), low, torch.ones(1, 3, 1, 1))
    found = TopK(mg.Gradient(net), 1.0, k=20, norm=norm, rule=rule, steps=6).perturb(x)
    assert bool(((found.x >= low) & (found.x <= 1)).all())
    assert distance(found.x - x, norm).max() <= 1 + 1e-6
    assert found.success.all()
    free = TopK(mg.Gradient(net), 1.0, k=20, norm=norm, rule=rule, steps=6, box=None).perturb(x)
    assert bool((free.x > 1).any())
    for one in (found, free):  # what a pixel is the model tells, whatever box the attack was given
        steps = (one.x - x) * 255 / (1 - low)
        torch.testing.assert_close(one.pixels_l2, steps.flatten(1).norm(dim=1))
        torch.testing.assert_close(one.pixels_linf, steps.flatten(1).abs().amax(1))


def test_a_box_without_the_image_is_refused_before_any_call():
    calls = []
    net = Seeing(convolutional().double(), calls.append)
    with pytest.raises(ValueError, match=r"2 of 3 outside.*box=None"):
        TopK(mg.Gradient(net), 1.0, box=(0, 1)).perturb(torch.cat([pictures(2), torch.rand(1, 3, 8, 8).double()]))
    assert not calls


def test_a_hair_outside_the_box_is_no_error_and_not_moved_by_the_box():
    x = pictures(dtype=torch.float32).clamp(0, 1)
    x = torch.where(x == 1, x + 1e-6, x)
    found = TopK(mg.Gradient(convolutional()), 0.5, k=20, steps=5, box=(0.0, 1.0)).perturb(x)
    assert found.success.all()
    assert bool(((found.x >= 0) & (found.x <= x.clamp(min=1))).all())


# ---- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({"k": k}, "at least 1") for k in (0, -3)],
        *[({"k": k}, "share") for k in (0.0, 1.5, float("nan"))],
        ({"epsilon": float("inf")}, "epsilon must be a positive"),
        *[({name: 0}, f"{name} must be at least 1") for name in ("steps", "restarts")],
        *[({name: 0.0}, f"{name} must be a positive") for name in ("step_size", "beta")],
        ({"rule": "newton"}, "rule must be one of"),
        ({"rule": "gradient", "norm": "linf"}, "use rule='sign'"),
        ({"surrogate": "relu"}, "surrogate must be"),
        *[({"box": box}, "box must be") for box in ("pixels", (0.0, 0.5, 1.0))],
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        attack(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": True}, "k must be a number"), ({"k": "4"}, "k must be a number"), ({"box": ("a", "b")}, "two numbers")],
)
def test_options_of_other_types(options, message):
    with pytest.raises(TypeError, match=message):
        attack(**options)


@pytest.mark.parametrize(
    ("inputs", "target", "error", "message"),
    [
        ((X,), None, TypeError, "inputs must be one tensor"),
        (X[0], None, ValueError, "batch axis"),
        (X.long(), None, TypeError, "floating point"),
        (X * torch.nan, None, ValueError, "finite"),
        (X, 2, ValueError, r"0\.\.1"),
        (X, [0, 1, 0], ValueError, "3 targets for 2 images"),
        (X, 0.5, TypeError, "target must be"),
    ],
)
def test_bad_inputs_and_targets(inputs, target, error, message):
    with pytest.raises(error, match=message):
        attack().perturb(inputs, target)


def test_a_box_that_does_not_broadcast_is_refused():
    box = torch.zeros(5, 1, 1) - 9, torch.ones(5, 1, 1) * 9
    with pytest.raises(ValueError, match=r"broadcast over the inputs .*\(C, 1, 1\)"):
        TopK(mg.Gradient(convolutional().double()), 1.0, box=box, steps=1).perturb(pictures())


@pytest.mark.parametrize("name", ["deeplift", "relex", "meaningful_perturbation", "fgvis"])
def test_methods_without_a_derivative_name_the_attacks_that_can_be_used(name):
    with pytest.raises(ValueError, match=r"cannot be differentiated.*noise.*pgd"):
        TopK(mg.METHODS[name](convolutional()), 1.0)


def test_models_lists_and_scores_of_one_class_are_refused():
    with pytest.raises(TypeError, match="needs a method"):
        TopK(convolutional(), 1.0)
    with pytest.raises(ValueError, match="one map per image"):
        TopK(mg.SparseMoreauGrad(convolutional(), sparsity=[0.1, 0.2]), 1.0)
    with pytest.raises(ValueError, match="needs a classifier"):
        attack(lambda v: v.square().sum(1)).perturb(X)
    with pytest.raises(ValueError, match=r"model\.eval"):
        TopK(mg.Gradient(convolutional().train()), 1.0).perturb(pictures(dtype=torch.float32))
