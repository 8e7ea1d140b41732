"""Noise as an attack: its size, its law, when the prediction counts, and bad input."""

import math

import pytest
import torch

from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.noise import RandomNoise

WIDE = {"box": None}


def linear(weight, bias=0.0):
    """Two classes; the second wins where weight @ x + bias > 0."""
    weight = torch.as_tensor(weight, dtype=torch.float64)

    def model(x):
        value = x.flatten(1) @ weight + bias
        return torch.stack([torch.zeros_like(value), value], 1)

    return model


def images(n=4, shape=(3, 8, 8), seed=0):
    return torch.rand(n, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ones(x):
    """A model that never changes its mind."""
    return torch.stack([x.flatten(1).sum(1) * 0 + 1, x.flatten(1).sum(1) * 0], 1)


def test_plain_noise_has_the_deviation_that_was_asked_for():
    x = images(2, (3, 60, 60)) * torch.tensor([1.0, 5.0], dtype=torch.float64).view(2, 1, 1, 1)
    found = RandomNoise(ones, 0.03, norm="plain", **WIDE).perturb(x)
    entries = x[0].numel()
    for row in range(2):
        change = (found.x - x)[row]
        sigma = 0.03 * float(x[row].max() - x[row].min())
        assert abs(float(change.mean())) < 4 * sigma / math.sqrt(entries)
        assert abs(float(change.std()) / sigma - 1) < 4 / math.sqrt(2 * entries)
        assert float(found.l2[row]) == pytest.approx(sigma * math.sqrt(entries), rel=4 / math.sqrt(2 * entries))
        # a normal law, not only its deviation: share within one and two sigma
        assert float((change.abs() < sigma).double().mean()) == pytest.approx(0.6827, abs=0.02)
        assert float((change.abs() < 2 * sigma).double().mean()) == pytest.approx(0.9545, abs=0.01)
    assert found.success.all()
    assert found.kept.all()
    assert (found.gradients == 0).all()


def test_plain_noise_is_linear_in_its_level_and_vanishes_with_it():
    x = images()
    once, twice = (RandomNoise(ones, level, norm="plain", **WIDE).perturb(x).x - x for level in (0.1, 0.2))
    torch.testing.assert_close(twice, 2 * once, rtol=0, atol=1e-14)
    nothing = RandomNoise(ones, 1e-300, norm="plain", **WIDE).perturb(x)
    assert torch.equal(nothing.x, x)
    assert not nothing.success.any()
    assert nothing.kept.all()
    assert (nothing.objective == 0).all()


def test_an_image_of_one_colour_has_no_range_and_is_not_moved():
    x = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float64)
    found = RandomNoise(ones, 0.1, norm="plain").perturb(x)
    assert torch.equal(found.x, x)
    assert not found.success.any()


def test_plain_noise_changes_the_prediction_as_often_as_it_must():
    """The lead m of a linear model changes sign with probability Phi(-m / (sigma |w|))."""
    w, x = torch.tensor([3.0, -1.0, 2.0, 0.5]), torch.tensor([[0.0, 0.2, 0.4, 1.0]], dtype=torch.float64)
    model, level = linear(w, bias=-0.4), 0.5
    lead = float(model(x)[0, 1])
    assert lead > 0
    wanted = 0.5 * math.erfc(lead / (level * float(w.norm())) / math.sqrt(2))
    runs = [RandomNoise(model, level, seed=seed, norm="plain", **WIDE).perturb(x) for seed in range(1500)]
    changed = sum(float(~run.kept) for run in runs) / len(runs)
    assert abs(changed - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / len(runs))
    assert 0.1 < wanted < 0.5
    for run in runs[:50]:
        assert torch.equal(run.kept, model(run.x).argmax(1) == 1)
        assert torch.equal(run.success, run.kept)
        assert not torch.equal(run.x, x)  # also where the prediction changed: nothing is drawn again


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (17,)])
def test_the_norm_is_exact(norm, shape):
    x = images(3, shape)
    found = RandomNoise(ones, 0.7, norm=norm, **WIDE).perturb(x)
    torch.testing.assert_close(getattr(found, norm), torch.full((3,), 0.7, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.objective, -getattr(found, norm))
    assert found.success.all()
    assert torch.equal(found.trace[0], torch.zeros(3, dtype=torch.float64))
    assert torch.equal(found.trace[-1], found.objective)
    if norm == "linf":  # a corner of the cube
        torch.testing.assert_close((found.x - x).abs(), torch.full_like(x, 0.7), rtol=1e-12, atol=0)


def test_directions_are_spread_evenly_over_the_sphere():
    x = torch.zeros(1, 3, dtype=torch.float64)
    draws = torch.cat([RandomNoise(ones, 1.0, norm="l2", seed=seed, **WIDE).perturb(x).x for seed in range(800)])
    assert (draws.mean(0).abs() < 4 * math.sqrt(1 / 3 / 800)).all()
    # by Archimedes each coordinate of a uniform point of the sphere is uniform in (-1, 1)
    for quantile in (0.25, 0.5, 0.75):
        assert (draws.quantile(quantile, 0) - (2 * quantile - 1)).abs().max() < 8 * math.sqrt(0.25 / 800)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_draws_are_repeated_until_the_prediction_is_kept(norm):
    """Each image takes the first of the shared draws that its own prediction survives."""
    x = images(6, (5,)) - 0.5
    model, epsilon = linear([1.0, -2.0, 0.5, 1.0, -1.0], 0.1), 1.5
    found = RandomNoise(model, epsilon, norm=norm, seed=3, **WIDE).perturb(x)
    clean, used = model(x).argmax(1), set()
    ball = Ball(x, epsilon, norm)
    for row in range(6):
        draw = next(n for n in range(100) if model(ball.random_point(3, n))[row].argmax() == clean[row])
        used.add(draw)
        assert torch.equal(found.x[row], ball.random_point(3, draw)[row])
    assert len(used) > 1  # or the test would say nothing of the repetition
    assert found.kept.all()
    assert found.success.all()


def test_draws_end_after_their_number_and_leave_the_image():
    x, calls = images(3, (5,)), []
    first = x[0]

    def stubborn(rows):
        """Keeps its class for the second image only at that image itself, for others anywhere."""
        near = (rows - x[1]).norm(dim=1) < 2
        same = (rows == x[1]).all(1)
        calls.append(int(near.sum()))
        value = torch.where(near & ~same, -1.0, 1.0)
        return torch.stack([-value, value], 1)

    x = torch.stack([first + 10, x[1], first - 10])
    found = RandomNoise(stubborn, 0.1, norm="l2", tries=7, **WIDE).perturb(x)
    assert torch.equal(found.success, torch.tensor([True, False, True]))
    assert torch.equal(found.x[1], x[1])
    assert found.kept.all()
    assert found.objective[1] == 0
    assert sum(calls) == 1 + 7 + 2  # clean, the draws, and x' itself, twice judged


@pytest.mark.parametrize("norm", ["plain", "l2", "linf"])
def test_the_box_holds_and_the_seed_decides(norm):
    x = images()
    attack = RandomNoise(ones, 0.4, norm=norm, box=(0.0, 1.0), seed=5)
    found = attack.perturb(x)
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    assert (found.x == 0).any()
    torch.testing.assert_close(found.pixels_l2, 255 * found.l2)
    before = torch.get_rng_state()
    assert torch.equal(found.x, attack.perturb(x).x)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(found.x, RandomNoise(ones, 0.4, norm=norm, box=(0.0, 1.0), seed=6).perturb(x).x)


def test_bad_input():
    with pytest.raises(ValueError, match="norm must be one of \\['plain', 'l2', 'linf'\\], got 'l1'"):
        RandomNoise(ones, 0.1, norm="l1")
    with pytest.raises(ValueError, match="tries must be at least 1"):
        RandomNoise(ones, 0.1, tries=0)
    with pytest.raises(TypeError, match="epsilon must be a number"):
        RandomNoise(ones, "0.1")
    with pytest.raises(ValueError, match="a classifier"):
        RandomNoise(lambda x: x.flatten(1).sum(1, keepdim=True), 0.1).perturb(images())


def test_the_length_is_exact_inside_a_box_too():
    """What clipping takes away is made up for in the same direction, as far as there is room."""
    x = torch.rand(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).round()  # at the walls
    found = RandomNoise(ones, 0.9, box=(0.0, 1.0)).perturb(x)
    torch.testing.assert_close(found.l2, torch.full((3,), 0.9, dtype=torch.float64), rtol=1e-6, atol=0)
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    far = RandomNoise(ones, 1e3, box=(0.0, 1.0)).perturb(x)
    assert (far.l2 <= 3 * 64).all()
