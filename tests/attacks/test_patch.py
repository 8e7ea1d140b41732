"""The patch attack: what it may touch, whose class it forces, and that it hides from the map."""

import pytest
import torch
from blob_network import averaging, blobs, flattening, trained
from torch import nn
from torch.nn import functional as F

from moreaugrad.attacks.patch import Patch, share_inside
from moreaugrad.methods import METHODS

X, Y = blobs(4, seed=5)
BOX = (-3.0, 3.0)
FAST = {"steps": 8, "step_size": 0.3, "size": 6, "box": BOX}


def gradcam(net=None, **options):
    return METHODS["gradcam"](trained() if net is None else net, **options)


def slow_share(net, x, t, mask):
    """Grad-CAM of the averaging network in one line of its own, and what of it lies under the mask."""
    features = net[:5](x)
    logit = net[5:](features).gather(1, t[:, None]).sum()
    (slope,) = torch.autograd.grad(logit, features, create_graph=True)
    cam = (slope.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu()
    cam = F.interpolate(cam, x.shape[2:], mode="bilinear", align_corners=False)
    return (cam * mask).sum((1, 2, 3)) / cam.sum((1, 2, 3))


def test_the_share_counts_cells_by_how_much_of_them_is_covered():
    mask = torch.zeros(8, 8, dtype=torch.bool)
    mask[:4, :3] = True
    assert share_inside(torch.ones(2, 1, 8, 8, dtype=torch.float64), mask).tolist() == [12 / 64] * 2
    coarse = torch.zeros(3, 1, 4, 4, dtype=torch.float64)
    coarse[0, 0, 0, 0], coarse[1, 0, 0, 1], coarse[2, 0, 3, 3] = 2, 5, 1  # covered whole, by half, not at all
    assert share_inside(coarse, mask).tolist() == [1, 0.5, 0]
    coloured = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    coloured[0, 0, 0, 0], coloured[0, 1, 0, 0], coloured[0, 2, 7, 7] = -1, 1, 2  # channels do not cancel
    assert float(share_inside(coloured, mask)) == 0.5
    assert float(share_inside(torch.zeros(1, 1, 8, 8), mask)) == 0


@pytest.mark.parametrize(
    ("size", "position", "wanted"),
    [(None, (0, 0), (0, 4, 0, 4)), (5, (3, 7), (3, 8, 7, 12)), ((2, 9), (14, 1), (14, 16, 1, 10))],
)
def test_outside_the_patch_nothing_changes_and_the_box_holds(size, position, wanted):
    found = Patch(gradcam(), **FAST | {"size": size, "position": position}).perturb(X)
    top, bottom, left, right = wanted
    mask = torch.zeros(16, 16, dtype=torch.bool)
    mask[top:bottom, left:right] = True
    assert torch.equal(found.mask, mask.expand(4, -1, -1))
    for x in (found.x, found.plain_x):
        assert torch.equal(x[..., ~mask], X[..., ~mask])
        assert float(x.min()) >= -3
        assert float(x.max()) <= 3


def test_the_steps_are_those_of_a_slow_derivation():
    """Where the target is predicted all along, only the share leads; the best point of the walk is returned."""
    net, steps, length = trained(), 10, 0.05
    attack = Patch(gradcam(net), steps=steps, step_size=length, size=6, box=(-0.5, 2.0), compare=False, surrogate=None)
    x = X.clamp(-0.5, 2.0)
    target = net(x).argmax(1)
    mask = attack.mask(x)
    at, best, value = torch.where(mask, 0.0, x), x, slow_share(net, x, target, mask).detach()
    for step in range(steps + 1):
        leaf = at.detach().requires_grad_()
        share = slow_share(net, leaf, target, mask)
        better = (share.detach() < value) & (net(leaf).argmax(1) == target)
        best = torch.where(better[:, None, None, None], at, best)
        value = torch.where(better, share.detach(), value)
        if step < steps:
            (grad,) = torch.autograd.grad(share.sum(), leaf)
            at = torch.where(mask, (at - length * grad.sign()).clamp(-0.5, 2.0), x)
    found = attack.perturb(x, target)
    assert bool(found.success.all())
    assert bool((value < slow_share(net, x, target, mask)).all())  # it had somewhere to go
    torch.testing.assert_close(found.x, best, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.share, value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.objective, value, rtol=1e-9, atol=1e-12)


def first_hit(attack, x, target):
    """The fewest steps with which the class is reached."""
    for steps in range(1, 40):
        found = attack(steps).perturb(x, target)
        if bool(found.success):
            return steps, found
    raise AssertionError("the class was never reached")


def test_a_huge_lam_goes_the_way_of_the_plain_patch_and_a_small_one_does_not():
    net, one = gradcam(trained(averaging, nn.Softplus)), X[:1]  # no unit is ever silent: CE has a slope everywhere
    target = int((Y[0] + 1) % 3)

    def made(steps, **options):
        return Patch(net, steps=steps, step_size=0.1, size=6, box=BOX, compare=False, **options)

    steps, plain = first_hit(lambda steps: made(steps, hide=False), one, target)
    assert steps > 5
    huge = made(steps, lam=1e12).perturb(one, target)
    assert torch.equal(huge.x, plain.x)
    assert not torch.equal(made(steps, lam=1.0).perturb(one, target).x, plain.x)


def test_the_hidden_patch_forces_the_class_as_often_and_hides():
    found = Patch(gradcam(), steps=40, step_size=0.15, size=6, box=BOX).perturb(X)
    assert found.success.all()
    assert found.plain_success.all()
    assert float(found.share.mean()) < 0.4 * float(found.plain_share.mean())
    assert bool((found.share < 0.5 * found.plain_share).all())
    net = trained()
    for x, share in ((found.x, found.share), (found.plain_x, found.plain_share)):
        assert torch.equal(net(x).argmax(1), found.target)
        torch.testing.assert_close(
            share, slow_share(net, x, found.target, found.mask[0]).detach(), rtol=1e-9, atol=1e-12
        )
    assert not bool(found.kept.any())
    assert torch.equal(found.trace, found.trace.cummin(0).values)
    assert bool((found.trace[0] >= 2).all())
    assert bool((found.trace[-1] <= 1).all())


@pytest.mark.parametrize("act", [nn.ReLU, nn.Softplus])
def test_a_gradient_map_is_hidden_from_as_well(act):
    """A network with kinks lends its class, its softplus copy the slope of the map."""
    found = Patch(METHODS["gradient"](trained(flattening, act)), steps=20, step_size=0.2, size=8, box=BOX).perturb(X)
    both = found.success & found.plain_success
    assert int(both.sum()) >= 2
    assert float(found.share[both].mean()) < 0.9 * float(found.plain_share[both].mean())


def test_a_map_without_a_slope_is_reported(caplog):
    """The gradient of a network with kinks is constant between them: nothing leads to a hidden patch."""
    for surrogate, warns in (("softplus", False), (None, True)):
        caplog.clear()
        Patch(METHODS["gradient"](trained()), **FAST, compare=False, surrogate=surrogate).perturb(X)
        assert ("the slope of the attack is zero everywhere" in caplog.text) is warns


def test_without_a_target_one_other_class_is_drawn():
    net = trained()
    said = net(X).argmax(1)
    offsets = set()
    for seed in range(6):
        target = Patch(gradcam(net), **FAST | {"steps": 1}, seed=seed).perturb(X).target
        offset = (target - said) % 3
        assert bool((offset == offset[0]).all())
        offsets.add(int(offset[0]))
    assert offsets == {1, 2}


def test_restarts_only_help_and_follow_their_seed():
    def run(**options):
        return Patch(gradcam(), **FAST, compare=False, **options).perturb(X, (Y + 1) % 3)

    one, more, again, other = run(), run(restarts=3), run(restarts=3), run(restarts=3, seed=1)
    assert bool((more.objective <= one.objective).all())
    assert bool((more.objective < one.objective).any())
    assert torch.equal(more.x, again.x)
    assert not torch.equal(more.x, other.x)


def test_a_hidden_patch_that_is_perfect_goes_no_further():
    """All weights of the class but the bias are zero: it is predicted, and its map is empty from the start."""
    net = trained()
    with torch.no_grad():
        net[-1].weight[0].zero_()
        net[-1].bias[0] = 1e3
    found = Patch(gradcam(net), **FAST, compare=False).perturb(X, 0)
    assert len(found.trace) == 1
    assert found.success_rate == 1
    assert found.share.tolist() == [0] * 4


def test_a_class_that_no_patch_can_force_leaves_the_input():
    net = trained()
    with torch.no_grad():
        net[-1].weight[2].zero_()
        net[-1].bias[2] = -1e3
    found = Patch(gradcam(net), **FAST).perturb(X, 2)
    assert not found.success.any()
    assert not found.plain_success.any()
    assert torch.equal(found.x, X)
    assert bool(found.share.isnan().all())
    assert bool((found.objective >= 2).all())
    assert found.l2.tolist() == found.linf.tolist() == [0] * 4


def test_a_plain_patch_alone_costs_a_gradient_per_step_and_one_map():
    attack = Patch(gradcam(), **FAST | {"steps": 5}, hide=False)
    found = attack.perturb(X[:1], (Y[:1] + 1) % 3)
    assert found.plain_x is None
    assert found.plain_success is None
    assert len(found.trace) == 7  # the start, and six looks
    assert found.gradients.tolist() == [5 + 1]


def test_progress_counts_both_searches():
    reports = []
    Patch(gradcam(), **FAST | {"steps": 3}).perturb(X[:2], callback=lambda *args: reports.append(args[:2]))
    assert reports == [(step, 8) for step in range(1, 9)]


def test_pictures_need_not_be_square():
    found = Patch(gradcam(), **FAST | {"size": None, "steps": 2}).perturb(X[:, :, :, :9])
    assert found.mask.shape == (4, 16, 9)
    assert int(found.mask[0].sum()) == 4 * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"size": (3, 2, 1)}, "size must be two whole numbers"),
        ({"size": 2.5}, "size must be a whole number"),
        ({"position": 3}, "position must be two whole numbers"),
        ({"position": (-1, 0)}, "position must be at least 0"),
        ({"lam": 0}, "lam must be a positive"),
        ({"hide": "yes"}, "hide must be True or False"),
        ({"compare": 1}, "compare must be True or False"),
        ({"step_size": None}, "step_size must be a number"),
        ({"rule": "gradient"}, "rule must be 'sign'"),
        ({"epsilon": -1.0}, "epsilon must be"),
    ],
)
def test_bad_options_are_refused_in_words(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Patch(gradcam(), **options)


def test_a_patch_that_does_not_fit_is_refused_before_the_model_is_called():
    def never(*_):
        raise AssertionError("the model was called")

    net = trained()
    net.register_forward_hook(never)
    for options, x, words in (
        ({"size": 17}, X, "must lie inside"),
        ({"size": 4, "position": (13, 0)}, X, "must lie inside"),
        ({"size": 16}, X, "must leave some"),
        ({"size": 4}, X.flatten(1), "lies on images"),
    ):
        with pytest.raises(ValueError, match=words):
            Patch(gradcam(net), box=None, **options).perturb(x)
    with pytest.raises(ValueError, match="in the box"):
        Patch(gradcam(net), box=(-0.1, 0.1)).perturb(X)


def test_methods_without_a_derivative_and_bare_models_are_refused():
    with pytest.raises(ValueError, match="cannot be differentiated"):
        Patch(METHODS["deeplift"](trained()))
    with pytest.raises(TypeError, match="needs a method"):
        Patch(trained())
    with pytest.raises(ValueError, match=r"target must lie in 0\.\.2"):
        Patch(gradcam(), **FAST).perturb(X, 7)
