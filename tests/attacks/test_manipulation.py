"""Manipulation of explanations: its laws, its schedule, the defence by smoothness, forms of targets, bad input."""

import math

import numpy as np
import pytest
import torch
from attacked_networks import Seeing, convolutional, gradient, pictures
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.base import AttackedModel
from moreaugrad.attacks.manipulation import Manipulation

SQUARE = torch.zeros(8, 8, dtype=torch.float64)
SQUARE[2:6, 1:4] = 1.0


def attack(net, epsilon=None, **options):
    return Manipulation(mg.Gradient(net), epsilon, **{"steps": 5, "step_size": 0.02, "target_map": SQUARE, **options})


def towards_image(net, image, **options):
    return attack(net, target_map=None, target_image=image, **options)


def plane(maps):
    size = maps.abs().sum(1)
    return size / size.sum((1, 2), keepdim=True)


# ---- laws


@pytest.mark.parametrize("act", [nn.ReLU, nn.Softplus])
def test_a_map_that_is_reached_already_stays(act):
    """h_t = h(x): the loss is zero at the start, and no point is better."""
    net, x = convolutional(act).double(), pictures(2)
    own = gradient(net, x, net(x).argmax(1))
    for found in (attack(net, target_map=own).perturb(x), towards_image(net, x).perturb(x)):
        assert torch.equal(found.x, x)
        assert found.objective.abs().max() < 1e-12
        assert not found.success.any()
        torch.testing.assert_close(found.pearson_target, torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("act", [nn.ReLU, nn.Softplus])
def test_without_the_weight_of_the_map_nothing_moves(act, caplog):
    """The output is compared with that of the same network, so at the input it has no slope at all."""
    net, x = convolutional(act).double(), pictures(2)
    found = attack(net, weights=(0.0, 1e6)).perturb(x)
    assert torch.equal(found.x, x)
    assert found.trace.eq(0).all()
    assert "slope of the attack is zero" in caplog.text


def test_map_comes_five_times_nearer_and_the_class_stays():
    """On a network with kinks: led by its softplus copies, judged on itself."""
    net, x = convolutional().double(), pictures(1)
    found = towards_image(net, pictures(1, seed=5), steps=220).perturb(x)
    assert (found.mse_before > 5 * found.mse_target).all()
    assert (found.pearson_target > 0.8).all()
    assert (found.pearson_target > mg.pearson(found.clean_maps, found.target_maps) + 0.2).all()
    assert found.kept.all()
    assert torch.equal(net(found.x).argmax(1), net(x).argmax(1))
    after = plane(gradient(net, found.x, found.target))
    torch.testing.assert_close(found.maps, after)
    torch.testing.assert_close(found.mse_target, (after - found.target_maps).square().mean((1, 2)))


def test_smoother_defences_leave_the_map_further_from_its_target():
    """Softplus of small beta bounds the curvature, and with it what a budget can do to the map."""
    net, x = convolutional().double(), pictures(3)
    residual = []
    for beta in (100.0, 10.0, 3.0, 1.0):
        found = attack(mg.with_softplus(net, beta), epsilon=1.0, steps=25, surrogate=None).perturb(x)
        residual.append(float((found.mse_target / found.mse_before).mean()))
    assert residual == sorted(residual)
    assert residual[0] < 0.9 < residual[-1] < 1


@pytest.mark.parametrize("beta", [1.0, 3.0, 10.0])
def test_softplus_is_the_mean_of_relu_under_logistic_noise(beta):
    """softplus_beta(z) = E relu(z - e), e ~ Logistic(0, 1/beta), by a fine sum over the density."""
    z = torch.linspace(-3, 3, 13, dtype=torch.float64)
    e = torch.linspace(-60 / beta, 60 / beta, 400_001, dtype=torch.float64)
    density = beta / (4 * torch.cosh(beta * e / 2) ** 2)
    wanted = torch.stack([torch.trapezoid(torch.relu(value - e) * density, e) for value in z])
    soft = mg.with_softplus(nn.Sequential(nn.ReLU()), beta)
    torch.testing.assert_close(soft(z), wanted, rtol=0, atol=1e-7)


# ---- the loss


def test_loss_is_the_definitions():
    net, x = convolutional(nn.Softplus).double(), pictures(2)
    found = attack(net, weights=(2e10, 3e5), steps=8).perturb(x)
    h, h0 = (plane(gradient(net, at, found.target)) for at in (found.x, x))
    target = SQUARE / SQUARE.sum()
    by_map = 2e10 * (64 / 50176) ** 2 * (h - target).square().mean((1, 2))
    by_output = 3e5 * (5 / 1000) * (net(found.x).softmax(1) - net(x).softmax(1)).square().mean(1)
    torch.testing.assert_close(found.objective, (by_map + by_output).detach())
    before = 2e10 * (64 / 50176) ** 2 * (h0 - target).square().mean((1, 2))
    torch.testing.assert_close(found.trace[0], before)
    assert found.success.all()


def test_weights_do_not_depend_on_the_number_of_pixels():
    """Each pixel cut in four: the same picture, the same loss."""
    maps, goal = pictures(2), plane(pictures(2, seed=4))
    small = attack(convolutional()).objective(maps, (goal, None))
    finer = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)
    fine_goal = goal.repeat_interleave(2, 1).repeat_interleave(2, 2) / 4
    torch.testing.assert_close(attack(convolutional()).objective(finer, (fine_goal, None)), small)
    cifar = torch.rand(1, 3, 32, 32, dtype=torch.float64)
    unit = attack(convolutional()).objective(cifar, (plane(cifar) + 1e-3, None))
    assert float(unit) == pytest.approx(1e11 * 4.165e-4 * 1e-6, rel=1e-3)


def test_weights_do_not_depend_on_the_number_of_classes():
    """More classes that are never named: the same loss."""
    x, maps = pictures(2), pictures(2, seed=3)
    few = convolutional(classes=5).double()

    def many(v):
        return torch.cat([few(v), torch.full((len(v), 45), -1e9, dtype=v.dtype)], 1)

    losses = []
    for model in (few, many):
        attacked = AttackedModel(model, torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long))
        before = model(pictures(2, seed=8)).softmax(1)
        losses.append(attack(few).loss(x, maps, (plane(maps), before), attacked))
    torch.testing.assert_close(losses[0], losses[1])
    assert (losses[0] > 0).all()


def test_figures_are_numpys():
    net, x = convolutional().double(), pictures(2)
    found = towards_image(net, pictures(1, seed=5)).perturb(x)
    torch.testing.assert_close(found.clean_maps, plane(gradient(net, x, found.target)))
    for row in range(2):
        after, clean, target = (
            maps[row].flatten().numpy() for maps in (found.maps, found.clean_maps, found.target_maps)
        )
        assert float(found.pearson_target[row]) == pytest.approx(np.corrcoef(after, target)[0, 1])
        assert float(found.pearson_clean[row]) == pytest.approx(np.corrcoef(after, clean)[0, 1])
        assert float(found.mse_target[row]) == pytest.approx(np.mean((after - target) ** 2))
        assert float(found.mse_before[row]) == pytest.approx(np.mean((clean - target) ** 2))


# ---- steps and schedule


def test_softplus_sharpens_from_step_to_step_and_the_models_own_stays():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Softplus(beta=2.0), nn.ReLU6(), nn.LeakyReLU(0.1),
        nn.Flatten(), nn.Linear(64, 3),
    ).double().eval()  # fmt: skip
    one = attack(net, steps=10)
    x = pictures(1)
    attacked = one.make_model(x, torch.zeros(1, dtype=torch.long), net(x).detach())
    rule = one.step_rule(attacked)
    copy = attacked.surrogate.forward_func
    for step in range(10):
        rule.before(step)
        wanted = 10 * 10 ** (step / 10)
        assert [copy[place].beta for place in (1, 4, 5)] == pytest.approx([wanted] * 3)
        assert copy[3].beta == 2.0
    assert net[3].beta == 2.0
    assert isinstance(net[1], nn.ReLU)
    mine = mg.with_softplus(net, 7.0)
    attack(net, surrogate=mine, steps=2).perturb(x)
    assert mine[1].beta == 7.0


# ---- bounds


def test_ball_and_box():
    net, x = convolutional().double(), pictures(2)
    free = attack(net).perturb(x)
    assert torch.equal(attack(net, epsilon=math.inf).perturb(x).x, free.x)
    for norm, epsilon in (("l2", 0.7), ("linf", 0.07)):
        held = attack(net, epsilon=epsilon, norm=norm).perturb(x)
        assert (getattr(held, norm) <= epsilon * (1 + 1e-6)).all()
        assert (getattr(free, norm) > epsilon).all()
        assert held.success.all()
    low, high = float(x.min()), float(x.max())
    boxed = attack(net, box=(low, high), step_size=0.5).perturb(x)
    assert bool(((boxed.x >= low) & (boxed.x <= high)).all())


# ---- targets


def test_target_maps_of_all_forms_say_the_same():
    net, x = convolutional(nn.Softplus).double(), pictures(2)
    channels = torch.stack([SQUARE, -SQUARE, 2 * SQUARE]) * 7
    forms = [
        SQUARE, 5 * SQUARE, SQUARE.numpy(), SQUARE.float(), SQUARE.bool(), SQUARE[None], SQUARE.expand(2, 8, 8),
        SQUARE.expand(2, 1, 8, 8), channels[None], channels.expand(2, 3, 8, 8),
    ]  # fmt: skip
    found = [attack(net, target_map=form, steps=2).perturb(x) for form in forms]
    for one in found:
        torch.testing.assert_close(one.target_maps, (SQUARE / SQUARE.sum()).expand(2, 8, 8))
        torch.testing.assert_close(one.x, found[0].x)


def test_target_images_lend_the_map_of_their_own_class():
    net, x = convolutional().double(), pictures(2)
    other = pictures(2, seed=12)
    theirs = plane(gradient(net, other, net(other).argmax(1)))
    torch.testing.assert_close(towards_image(net, other, steps=1).perturb(x, 0).target_maps, theirs)
    for form in (other[:1], other[0]):
        found = towards_image(net, form, steps=1).perturb(x, 0)
        torch.testing.assert_close(found.target_maps, theirs[:1].expand(2, 8, 8))


def test_each_image_has_its_own_target():
    net, x = convolutional(nn.Softplus).double(), pictures(3)
    goals = pictures(3, seed=6)
    together = attack(net, target_map=goals).perturb(x)
    for row in range(3):
        alone = attack(net, target_map=goals[row : row + 1]).perturb(x[row : row + 1])
        assert torch.equal(alone.x, together.x[row : row + 1])


def test_strongest_of_several_kinds_tells_what_all_tell():
    net, x = convolutional().double(), pictures(4)
    found = [attack(net, step_size=size).perturb(x) for size in (0.01, 0.3)]
    found.append(mg.ATTACKS["topk"](mg.Gradient(net), 1.0, k=20, steps=2).perturb(x))
    best, which = mg.strongest_attack(found, by=[-each.l2 for each in found])
    assert type(best) is mg.AttackResult
    for row, number in enumerate(which.tolist()):
        assert torch.equal(best.x[row], found[number].x[row])
        assert torch.equal(best.l2[row], found[number].l2[row])


# ---- bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target_map": None}, ValueError, "got none of them"),
        ({"target_image": torch.zeros(1, 3, 8, 8)}, ValueError, "got both"),
        ({"target_map": "cat.png"}, TypeError, "tensor or an array"),
        ({"target_map": SQUARE * torch.nan}, ValueError, "finite"),
        ({"weights": (1.0, -1.0)}, ValueError, "weights must be a finite number >= 0"),
        ({"weights": 3.0}, ValueError, "weights must be two numbers"),
        ({"betas": (0.0, 10.0)}, ValueError, "betas must be a positive"),
        ({"step_size": 0.0}, ValueError, "step_size must be a positive"),
        ({"step_size": None}, TypeError, "step_size must be a number"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"epsilon": -math.inf}, ValueError, "epsilon must be a positive"),
        *[({name: 2}, TypeError, name) for name in ("rule", "restarts", "beta")],
    ],
)
def test_bad_options_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=message):
        attack(convolutional(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_map": SQUARE[:4]}, r"8 x 8 pixels.*got shape \(4, 8\)"),
        ({"target_map": SQUARE.expand(3, 8, 8)}, "one row or 2"),
        ({"target_map": 0 * SQUARE}, "map of zeros"),
        ({"target_map": torch.stack([SQUARE, 0 * SQUARE])}, "map of zeros"),
        ({"target_map": None, "target_image": torch.zeros(1, 3, 9, 9)}, "shape of the inputs"),
        ({"target_map": None, "target_image": torch.zeros(3, 3, 8, 8)}, "shape of the inputs"),
    ],
)
def test_targets_that_do_not_fit_are_refused_before_any_call(options, message):
    calls = []
    net = Seeing(convolutional().double(), calls.append)
    with pytest.raises(ValueError, match=message):
        attack(net, **options).perturb(pictures(2))
    assert not calls


def test_a_target_image_without_a_map_is_refused():
    class Dead(nn.Module):
        """Answers to bright images only."""

        def forward(self, v):
            score = v.clamp(min=0).square().flatten(1).sum(1)
            return torch.stack([score + 1, -score], 1)

    with pytest.raises(ValueError, match="must not be zero everywhere"):
        towards_image(Dead().eval(), torch.full((1, 3, 8, 8), -1.0)).perturb(pictures(2))
