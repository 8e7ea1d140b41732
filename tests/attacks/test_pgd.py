"""Projected gradient descent on the class: closed forms, Captum as the oracle, laws, and bad input."""

import logging

import pytest
import torch
from captum.robust import FGSM, PGD
from torch import nn
from torch.nn import functional as F

from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.pgd import Pgd

CAPTUM = "ignore:Input Tensor 0 did not already require gradients:UserWarning"  # of its own iterates
W = torch.tensor([1.0, -2.0, 0.5, 3.0, -0.1], dtype=torch.float64)


def linear(x):
    """Two classes whose logits are w.x and -w.x."""
    return torch.stack([x @ W, -(x @ W)], 1)


def network(classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.SiLU(), nn.Conv2d(6, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(54, classes)
    )
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * (0.6 if parameter.ndim > 1 else 0.1)
    return net.double().eval()


def images(n=12, seed=1):
    return torch.rand(n, 2, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cross_entropy(output, target):
    return F.cross_entropy(output, target, reduction="none")


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("random_start", [False, True])
def test_linear_model_is_solved_to_the_optimum(norm, random_start):
    """The farthest that a linear score goes within the ball: x -+ eps sign(w), and x -+ eps w/|w|."""
    x = torch.stack([W, -W]) / 20  # predicted 0 and 1
    found = Pgd(linear, 1.0, norm=norm, steps=90, random_start=random_start).perturb(x)
    away = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    wanted = x + away * (W.sign() if norm == "linf" else W / W.norm())
    # around the optimum of the sphere the loss is flat: the best of its values tells x to the root of the precision
    torch.testing.assert_close(found.x, wanted, rtol=0, atol=1e-12 if norm == "linf" else 1e-7)
    assert found.success.all()
    assert not found.kept.any()
    torch.testing.assert_close(found.objective, -cross_entropy(linear(wanted), torch.tensor([0, 1])))
    torch.testing.assert_close(found.trace[0], -cross_entropy(linear(x), torch.tensor([0, 1])))
    assert (found.gradients == 90).all()


def test_box_cuts_the_optimum_off():
    x = torch.full((1, 5), 0.5, dtype=torch.float64)
    found = Pgd(linear, 0.7, box=(0.0, 1.0), steps=10).perturb(x)
    torch.testing.assert_close(found.x, (W < 0).double()[None], rtol=0, atol=1e-12)


def captums(model, x, target, steps, targeted):
    """Every iterate, of which Captum returns the last alone."""
    pgd = PGD(model, cross_entropy, lower_bound=0.0, upper_bound=1.0)
    pgd.fgsm.zero_thresh = 0.0  # it takes gradients below 1e-6 for zero
    return torch.stack(
        [x]
        + [
            pgd.perturb(x.clone(), radius=0.12, step_size=0.03, step_num=n, target=target, targeted=targeted)
            for n in range(1, steps + 1)
        ]
    )


@pytest.mark.filterwarnings(CAPTUM)
@pytest.mark.parametrize("goal", [None, 2])
def test_agrees_with_captum_without_a_random_start(goal):
    """Ours is, for each image, the best valid one of Captum's iterates."""
    model, x, steps = network(), images(), 8
    clean = model(x).argmax(1)
    named = clean if goal is None else torch.full_like(clean, goal)
    points = captums(model, x, named, steps, goal is not None)
    sign = -1 if goal is None else 1
    values = torch.stack([sign * cross_entropy(model(at), named) for at in points]).detach()
    predicted = torch.stack([model(at).argmax(1) for at in points])
    valid = predicted != clean if goal is None else predicted == goal
    best = torch.where(valid, values, torch.inf).argmin(0)
    wanted = torch.where(valid.any(0).view(-1, 1, 1, 1), points[best, torch.arange(len(x))], x)
    options = {"step_size": 0.03, "steps": steps, "random_start": False, "box": (0.0, 1.0), "goal": goal}
    found = Pgd(model, 0.12, **options).perturb(x)
    torch.testing.assert_close(found.x, wanted.detach(), rtol=0, atol=1e-12)
    assert torch.equal(found.success, valid.any(0))
    assert 0 < int(found.success.sum()) < len(x)  # both outcomes are compared


@pytest.mark.filterwarnings(CAPTUM)
def test_one_step_is_captums_fgsm_and_many_are_no_weaker():
    model, x = network(), images(40)
    target = model(x).argmax(1)
    fgsm = FGSM(model, cross_entropy, 0.0, 1.0)
    fgsm.zero_thresh = 0.0
    outside = fgsm.perturb(x.clone(), epsilon=0.05, target=target).detach()
    once = Pgd(model, 0.05, step_size=0.05, steps=1, random_start=False, box=(0.0, 1.0)).perturb(x)
    changed = model(outside).argmax(1) != target
    assert torch.equal(once.success, changed)
    torch.testing.assert_close(once.x[changed], outside[changed], rtol=0, atol=1e-12)
    assert torch.equal(once.x[~changed], x[~changed])
    many = Pgd(model, 0.05, steps=20, random_start=False, box=(0.0, 1.0)).perturb(x)
    assert many.success[once.success].all()
    assert many.success.sum() > once.success.sum()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_convex_loss_never_falls_on_the_way_up(norm):
    weight = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x, points = torch.zeros(1, 5, dtype=torch.float64) + 0.1, []

    def model(rows):
        if rows.requires_grad:
            points.append(rows.detach().clone())
        return rows @ weight

    found = Pgd(model, 10.0, norm=norm, step_size=1e-2, steps=40, random_start=False).perturb(x)
    losses = torch.stack([cross_entropy(rows @ weight, found.target) for rows in points])
    assert len(losses) == 40
    assert (losses.diff(dim=0) > 0).all()


def test_l2_steps_have_their_length_whatever_the_gradient():
    points, x = [], torch.tensor([[3.0, 4.0]], dtype=torch.float64)

    def model(rows):
        if rows.requires_grad:
            points.append(rows.detach().clone())
        return torch.stack([rows[:, 0] * 1e-3, rows[:, 1] * 1e-3], 1)

    Pgd(model, 5.0, norm="l2", step_size=0.25, steps=4, random_start=False).perturb(x)
    moves = torch.cat(points).diff(dim=0)
    torch.testing.assert_close(moves, torch.tensor([[0.25, -0.25]], dtype=torch.float64).expand(3, 2) / 2**0.5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("goal", [None, 1])
def test_ball_and_box_hold(norm, goal):
    model, x = network(), images()
    epsilon = 0.1 if norm == "linf" else 0.8
    found = Pgd(model, epsilon, norm=norm, goal=goal, restarts=3, box=(0.0, 1.0)).perturb(x)
    assert (getattr(found, norm) <= epsilon * (1 + 1e-12)).all()
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    predicted = model(found.x).argmax(1)
    assert torch.equal(found.success, predicted != found.target if goal is None else predicted == goal)
    assert found.success.any()
    assert torch.equal(found.x[~found.success], x[~found.success])
    assert torch.equal(found.objective, found.trace[-1])
    assert (found.trace.diff(dim=0)[1:] <= 0).all()
    assert (found.gradients == 60).all()


def test_more_restarts_start_elsewhere_and_are_no_weaker():
    model, x = network(), images(30)
    one, three = (Pgd(model, 0.03, steps=3, restarts=n).perturb(x) for n in (1, 3))
    assert (three.objective[one.success] <= one.objective[one.success]).all()
    assert three.success[one.success].all()
    assert (three.objective < one.objective).any()
    ball = Ball(x, 0.03, "linf")
    assert not torch.equal(ball.random_point(0, 0, surface=False), ball.random_point(0, 1, surface=False))


def test_goal_lowers_its_cross_entropy_and_may_differ_by_image():
    model, x = network(), images(4)
    goal = (model(x).argmax(1) + torch.tensor([1, 2, 3, 1])) % 4
    found = Pgd(model, 1.0, goal=goal, box=None).perturb(x)
    assert found.success.all()
    assert torch.equal(model(found.x).argmax(1), goal)
    torch.testing.assert_close(found.objective, cross_entropy(model(found.x), goal).detach())
    assert (found.objective < found.trace[0]).all()
    listed = Pgd(model, 1.0, goal=goal.tolist(), box=None).perturb(x)
    assert torch.equal(listed.x, found.x)


def test_a_success_whose_cross_entropy_is_lower_than_the_clean_ones_counts():
    """p goes from (.4, .3, .3) to (.45, .55, 0): another class, though the attacked one has become more probable."""
    clean, other = torch.tensor([0.4, 0.3, 0.3]).double().log(), torch.tensor([0.45, 0.55, 1e-9]).double().log()

    def model(x):  # a shift that no gradient leads to, only the start
        far = (x.abs().sum(1, keepdim=True) > 0).double()
        return clean * (1 - far) + other * far + 0 * x.sum(1, keepdim=True)

    found = Pgd(model, 0.1, steps=1).perturb(torch.zeros(1, 2, dtype=torch.float64))
    assert found.success.all()
    assert found.objective > found.trace[0]


def test_labels_as_target_count_what_is_wrong_already():
    """Accuracy under attack: an image that the model gets wrong needs no change, and is never made right."""
    model, x = network(), images(20)
    label = (model(x).argmax(1) + torch.arange(20) % 2) % 4  # every other one wrong
    found = Pgd(model, 1e-6).perturb(x, label)
    wrong = torch.arange(20) % 2 == 1
    assert torch.equal(found.success, wrong)
    assert found.kept.all()
    assert torch.equal(model(found.x).argmax(1) != label, wrong)
    assert (found.objective <= found.trace[0]).all()


def test_a_slope_of_zero_is_mentioned(caplog):
    def sure(x):
        return torch.stack([x.sum(1) * 0 + 500, x.sum(1)], 1)

    x = torch.ones(1, 3)
    with caplog.at_level(logging.WARNING, logger="moreaugrad"):
        found = Pgd(sure, 0.1).perturb(x)
    assert "zero everywhere" in caplog.text
    assert not found.success.any()
    assert torch.equal(found.x, x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"norm": "l1"}, "norm must be one of \\['l2', 'linf'\\], got 'l1'"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"restarts": 0}, "restarts must be at least 1"),
        ({"step_size": 0.0}, "step_size must be a positive"),
    ],
)
def test_bad_options(wrong, words):
    with pytest.raises(ValueError, match=words):
        Pgd(linear, **{"epsilon": 0.1, **wrong})


@pytest.mark.parametrize("goal", [4, -1, [0, 1, 7], [0, 1]])
def test_bad_goals(goal):
    with pytest.raises(ValueError, match="goal must"):
        Pgd(network(), 0.1, goal=goal).perturb(images(3))


def test_bad_kinds():
    with pytest.raises(TypeError, match="goal must"):
        Pgd(network(), 0.1, goal=1.5).perturb(images(3))
    with pytest.raises(TypeError, match="random_start must be True"):
        Pgd(network(), 0.1, random_start=1)
    with pytest.raises(ValueError, match="evaluation mode"):
        Pgd(nn.Sequential(nn.Dropout(), nn.Linear(3, 2)), 0.1).perturb(torch.rand(1, 3))
