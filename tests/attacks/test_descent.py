"""Projected descent: the ball and its box, the step rules, and the loop that keeps the best valid point."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moreaugrad.attacks.descent import Ball, Objective, ShrinkingSteps, SignSteps, descend
from moreaugrad.model.smoothing import antithetic
from moreaugrad.types import ignore_progress

rows = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


@given(x=rows, at=rows, other=rows, epsilon=st.floats(0.01, 3), norm=st.sampled_from(["l2", "linf"]))
def test_projection_is_the_nearest_point_of_the_ball(x, at, other, epsilon, norm):
    x, at, other = (torch.tensor([v], dtype=torch.float64) for v in (x, at, other))
    ball = Ball(x, epsilon, norm)
    found = ball.project(at)
    assert ball.length(found) <= epsilon * (1 + 1e-12) + 1e-15
    rival = ball.project(other)  # any point of the ball
    assert (found - at).norm() <= (rival - at).norm() + 1e-12
    torch.testing.assert_close(ball.project(found), found)


@given(x=rows, at=rows, epsilon=st.floats(0.01, 3), norm=st.sampled_from(["l2", "linf"]))
def test_box_never_leaves_the_ball(x, at, epsilon, norm):
    x, at = (torch.tensor([v], dtype=torch.float64) for v in (x, at))
    x = x.clamp(-1, 2)
    ball = Ball(x, epsilon, norm, torch.tensor(-1.0).double(), torch.tensor(2.0).double())
    found = ball.project(at)
    assert ball.length(found) <= epsilon * (1 + 1e-12) + 1e-15
    assert bool(((found >= -1) & (found <= 2)).all())
    if norm == "linf":
        wanted = at.maximum((x - epsilon).clamp(min=-1)).minimum((x + epsilon).clamp(max=2))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)


def test_random_points_are_uniform_and_the_same_for_every_image():
    x = torch.zeros(2, 3, dtype=torch.float64)
    ball = Ball(x, 2.0, "l2")
    drawn = torch.stack([ball.random_point(0, draw)[0] for draw in range(500)])
    torch.testing.assert_close(drawn.norm(dim=1), torch.full((500,), 2.0, dtype=torch.float64))
    assert drawn.mean(0).abs().max() < 4 * 2 / math.sqrt(3 * 500)
    inner = torch.stack([ball.random_point(0, draw, surface=False)[0] for draw in range(500)]).norm(dim=1)
    assert float((inner / 2).pow(3).mean()) == pytest.approx(0.5, abs=4 / math.sqrt(12 * 500))  # uniform in volume
    assert (inner <= 2).all()
    cube = Ball(x, 2.0, "linf")
    corner, point = cube.random_point(5, 1), cube.random_point(5, 1, surface=False)
    assert corner.abs().eq(2).all()
    assert point.abs().max() < 2
    for one in (ball.random_point(0, 0), corner, point):
        assert torch.equal(one[0], one[1])
    assert torch.equal(Ball(x[:1], 2.0, "l2").random_point(0, 9), ball.random_point(0, 9)[:1])


def test_an_attack_does_not_draw_the_noise_of_the_method():
    """With the same seed on both sides: the attacker would move along the very vectors that are averaged over."""
    x = torch.zeros(1, 3, 8, 8)
    theirs = antithetic((3, 8, 8), 64, 0, 0, x).flatten(1)
    ours = torch.cat([Ball(x, 1.0, "l2").random_point(0, draw) for draw in range(20)]).flatten(1)
    assert torch.cosine_similarity(ours[:, None], theirs[None], dim=2).abs().max() < 0.5


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("epsilon", [1e-3, 8 / 255, 0.5])
def test_rounding_does_not_leave_the_ball(norm, epsilon):

    x = 1.5 * torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ball = Ball(x, epsilon, norm)
    for at in (
        ball.project(x + torch.randn(x.shape, generator=torch.Generator().manual_seed(1))),
        ball.random_point(0, 0),
    ):
        delta = (at.double() - x.double()).flatten(1)
        length = delta.norm(dim=1) if norm == "l2" else delta.abs().amax(1)
        assert length.max() <= epsilon * (1 + 1e-6)
        assert length.min() >= epsilon * (1 - 1e-2)  # a change of 1e-3 has few digits beside an x of 1.5


def test_the_loop_keeps_the_best_valid_point_and_copes_with_nan():
    x = torch.zeros(2, 1, dtype=torch.float64)
    ball = Ball(x, 1.0, "linf")

    def slope(at):
        grad = torch.full_like(at, -1.0)
        grad[1] = torch.nan
        return -at[:, 0], grad

    objective = Objective(value=lambda at: -at[:, 0], value_and_grad=slope, is_valid=lambda at: at[:, 0] < 0.75)
    found = descend(ball, objective, SignSteps(0.25), steps=6, restarts=1, seed=0, watch=ignore_progress)
    assert found.x.flatten().tolist() == [0.5, 0.0]
    assert found.objective.tolist() == [-0.5, 0.0]
    assert found.trace[:, 0].tolist() == [0, 0, -0.25, -0.5, -0.5, -0.5, -0.5, -0.5]
    assert not found.flat


def test_a_last_digit_of_the_slope_is_no_success():
    """The value that comes with a slope is computed another way: what it alone thinks better is not."""
    x = torch.zeros(2, 1, dtype=torch.float64)
    drop = torch.tensor([0.0, 0.5], dtype=torch.float64)  # the second image has something to gain

    def value(at):
        return 1 - drop * at[:, 0]

    objective = Objective(value, lambda at: (value(at) - 1e-9, -torch.ones_like(at)), lambda at: at[:, 0] <= 2)
    found = descend(Ball(x, 1.0, "linf"), objective, SignSteps(0.5), steps=3, restarts=1, seed=0, watch=ignore_progress)
    assert found.x.flatten().tolist() == [0.0, 1.0]
    assert found.objective.tolist() == [1.0, 0.5]
    assert (found.trace.diff(dim=0) <= 0).all()
    assert torch.equal(found.trace[-1], found.objective)


def test_shrinking_steps_are_halved_until_valid_row_by_row():
    x = torch.zeros(3, 1, dtype=torch.float64)
    limits = torch.tensor([1.0, 0.3, 1e-9], dtype=torch.float64)
    objective = Objective(
        lambda at: -at[:, 0], lambda at: (-at[:, 0], -torch.ones_like(at)), lambda at: at[:, 0] < limits
    )
    moved = ShrinkingSteps().step(Ball(x, 0.8, "l2"), objective, x, -torch.ones_like(x), number=0)
    assert moved.flatten().tolist() == [0.8, 0.2, 0.0]
    assert ShrinkingSteps().step(Ball(x, 0.8, "l2"), objective, x, -torch.ones_like(x), number=3)[0] == pytest.approx(
        0.2
    )
