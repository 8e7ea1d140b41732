"""Meaningful perturbation: masks that are known, the same steps by torch's own parts, laws and bad input."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.nn import functional as F

from moreaugrad.methods.mask_optimisation import class_probabilities
from moreaugrad.methods.perturbation import (
    MeaningfulPerturbation,
    _discs,
    _shift_image,
    blur,
    total_variation,
    upsampling_matrix,
)
from moreaugrad.model.prepared import Engine
from moreaugrad.model.score import ClassScore

FAST = {"budget": 6}


def network(seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4),
        ).to(dtype).eval()  # fmt: skip


X = torch.randn(3, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def corner(x):
    """The second class where the upper left quarter is bright."""
    bright = x[:, :, :16, :16].mean((1, 2, 3))
    return torch.stack([0 * bright, 20 * (bright - 0.6)], 1)


def bright_corner():
    x = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    x[:, :, :16, :16] = 1
    return x


@pytest.mark.parametrize("mode", ["deletion", "preservation"])
def test_mask_covers_the_quarter_that_is_read_and_no_other(mode):
    found = MeaningfulPerturbation(corner, mode, replacement="constant", lam1=1e-3).explain(bright_corner(), 1)
    assert found.map.shape == (1, 1, 32, 32)
    assert found.coarse.shape == (1, 1, 16, 16)
    outside = found.map.clone()
    outside[..., :22, :22] = 0  # the mask is blurred over the edge, and smooth
    assert outside.max() < 0.05
    assert found.map[..., :16, :16].mean() > 0.3
    kept = 1 - found.map if mode == "deletion" else found.map
    x = bright_corner()
    mixed = kept * x + (1 - kept) * x.mean((2, 3), keepdim=True)
    chance = corner(mixed).softmax(1)[0, 1]
    assert chance < 0.1 if mode == "deletion" else chance > 0.9


@pytest.mark.parametrize("mode", ["deletion", "preservation"])
def test_a_huge_penalty_leaves_the_mask_empty(mode):
    found = MeaningfulPerturbation(network(), mode, lam1=1e6, budget=40).attribute(X, 1)
    assert not found.any()


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0])
def test_total_variation(beta):
    flat = torch.full((2, 1, 7, 9), 0.3, dtype=torch.float64, requires_grad=True)
    value = total_variation(flat, beta)
    assert (value.abs() < 1e-3 if beta < 2 else value == 0).all()
    (grad,) = torch.autograd.grad(value.sum(), flat)
    assert not grad.any()  # and no NaN
    edge = torch.zeros(1, 1, 7, 9, dtype=torch.float64)
    edge[..., 4:] = 1
    assert float(total_variation(edge, beta)) == pytest.approx(7, abs=1e-3)
    assert float(total_variation(edge.mT, beta)) == pytest.approx(7, abs=1e-3)
    point = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    point[..., 2, 2] = 1  # the pixel itself differs in both directions, two neighbours in one
    assert float(total_variation(point, beta)) == pytest.approx(2 ** (beta / 2) + 2, abs=1e-3)


def test_blur_is_gaussian_and_keeps_constants():
    x = torch.randn(2, 40, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x[:, :14] = x[:, -14:] = 0
    x[..., :14] = x[..., -14:] = 0
    wanted = gaussian_filter(x.numpy(), (0, 1.5, 1.5), mode="constant", truncate=12)
    inner = (slice(None), slice(8, -8), slice(8, -8))  # farther than any weight that counts from the border
    np.testing.assert_allclose(blur(x, 1.5).numpy()[inner], wanted[inner], atol=1e-6)
    ones = torch.ones(1, 9, 11, dtype=torch.float64)
    torch.testing.assert_close(blur(ones, 3.0), ones)
    torch.testing.assert_close(blur(x, 0.0), x)


@pytest.mark.parametrize(("size", "scale", "low"), [(224, 8, 28), (13, 4, 4), (12, 3, 4)])
def test_low_resolution_is_repeated_then_blurred(size, scale, low):
    mask = torch.rand(1, 1, low, low, dtype=torch.float64)
    up = upsampling_matrix(size, scale, 1.3, mask)
    wanted = blur(F.interpolate(mask, scale_factor=scale, mode="nearest")[..., :size, :size], 1.3)
    torch.testing.assert_close(up @ mask @ up.T, wanted)


def score(net, x, target):
    return ClassScore(Engine(net, rows=4), target, len(x), kind="prob")


@pytest.mark.parametrize("seed", range(4))
def test_starts_at_the_smallest_disc_that_takes_the_class_away(seed):
    net = nn.Sequential(network(seed), nn.Linear(4, 4).double()).requires_grad_(False)
    x = X[:1] * 3
    replaced = blur(x, 10 * 12 / 224)
    gone = _discs(x)
    whole, none = (net(v).softmax(1)[0, 1] for v in (x, replaced))
    wanted = 0
    if whole > none:
        wanted = next(
            (
                k
                for k in range(35)
                if (net(x + gone[k] * (replaced - x)).softmax(1)[0, 1] - none) / (whole - none) < 0.01
            ),
            34,
        )
    start = MeaningfulPerturbation(net, budget=1, lr=1e-12).explain(x, 1).coarse
    torch.testing.assert_close(start, F.avg_pool2d(gone[wanted : wanted + 1], 2), atol=1e-9, rtol=0)


def test_discs_grow_from_nothing_to_everything():
    discs = _discs(torch.zeros(1, 3, 224, 224))
    assert discs.shape == (35, 1, 224, 224)
    assert not discs[0].any()
    assert (discs[1:] >= discs[:-1]).all()
    assert discs[-1].min() > 0.7
    area = float(discs[12].sum())
    assert area == pytest.approx(np.pi * 60**2, rel=0.01)


def test_forward_chances_are_those_of_the_class_and_of_the_likeliest():
    net, target = network(), torch.tensor([2, 0, 1])
    which = torch.tensor([2, 0, 0, 1, 2, 1, 1])
    found, likeliest = class_probabilities(score(net, X, target), X[which], which)
    every = net(X[which]).softmax(1)
    torch.testing.assert_close(found, every.gather(1, target[which, None])[:, 0])
    torch.testing.assert_close(likeliest, every.amax(1))


@pytest.mark.parametrize("mode", ["deletion", "preservation"])
def test_steps_are_those_of_torchs_adam_on_the_written_objective(mode):
    net, sign = network(), 1 if mode == "deletion" else -1
    options = {"lam1": 3e-3, "lam2": 0.05, "jitter": 1, "scale": 3, "blur": 1.4}
    for row in range(3):
        x = X[row : row + 1]
        start = MeaningfulPerturbation(net, mode, budget=1, lr=1e-14, **options).explain(x, 1).coarse
        leaf = (1 - start if mode == "deletion" else start).clamp(0, 1).requires_grad_()
        adam = torch.optim.Adam([leaf], lr=0.1)
        for _ in range(5):
            full = blur(F.interpolate(leaf, scale_factor=3, mode="nearest"), 0.7)
            down, right = leaf.diff(dim=-2)[..., :-1], leaf.diff(dim=-1)[..., :-1, :]
            rough = (down.square() + right.square()).pow(1.5).sum()
            rough = (
                rough + leaf.diff(dim=-2)[..., -1].abs().pow(3).sum() + leaf.diff(dim=-1)[..., -1, :].abs().pow(3).sum()
            )
            size = (1 - leaf).sum() if mode == "deletion" else leaf.sum()
            chance = net(full * x + (1 - full) * blur(x, 1.4)).softmax(1)[0, 1]
            adam.zero_grad()
            (sign * chance + 3e-3 * size + 0.05 * rough).backward()
            adam.step()
            leaf.data.clamp_(0, 1)
        found = MeaningfulPerturbation(net, mode, budget=5, **options).explain(x, 1).coarse
        wanted = 1 - leaf.detach() if mode == "deletion" else leaf.detach()
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_shifts_move_whole_pixels():
    x = torch.arange(20.0).view(1, 1, 4, 5)
    moved = _shift_image(x, (1, -2))
    assert torch.equal(moved[..., :-1, 2:], x[..., 1:, :-2])
    assert torch.equal(moved[..., 0], moved[..., 2])  # the border is repeated
    assert torch.equal(_shift_image(x, (0, 0)), x)


def test_jitter_is_symmetric_and_of_the_asked_width():
    shifts = set()
    method = MeaningfulPerturbation(network(), jitter=4)

    class FakeCall:
        x, seed = X, 3

    for step in range(200):
        shifts.add(method._shift(FakeCall, step))
    assert shifts == {(down, right) for down in range(-2, 2) for right in range(-2, 2)}
    assert {MeaningfulPerturbation(network(), jitter=1)._shift(FakeCall, step) for step in range(9)} == {(0, 0)}


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 13, 9), (3, 32, 32)])
def test_shapes_and_bounds(shape):
    x = torch.randn(2, *shape, dtype=torch.float64)
    weight = torch.randn(3, *shape, dtype=torch.float64)
    net = lambda v: torch.einsum("nchw,kchw->nk", v, weight)  # noqa: E731
    found = MeaningfulPerturbation(net, budget=4).explain(x)
    assert found.map.shape == (2, 1, *shape[1:])
    assert found.coarse.shape == (2, 1, -(-shape[1] // 2), -(-shape[2] // 2))
    for part in (found.map, found.coarse):
        assert (part >= 0).all()
        assert (part <= 1).all()
    assert found.gradients.tolist() == [4, 4]


def test_sizes_follow_the_picture():
    lengths = MeaningfulPerturbation(network())._lengths
    assert lengths(224) == (8, 10)
    assert lengths(32) == (2, pytest.approx(10 / 7))
    assert MeaningfulPerturbation(network(), scale=5, blur=3.0)._lengths(224) == (5, 3.0)


@pytest.mark.parametrize("replacement", ["blur", "constant", "noise"])
@pytest.mark.parametrize("mode", ["deletion", "preservation"])
def test_alone_as_in_a_batch_and_in_any_chunks(mode, replacement):
    net = network()
    options = {"mode": mode, "replacement": replacement, "jitter": 3, **FAST}
    maps = MeaningfulPerturbation(net, **options).attribute(X, [0, 1, 2])
    assert torch.equal(maps, MeaningfulPerturbation(net, **options).attribute(X, [0, 1, 2]))
    for row in range(3):
        alone = MeaningfulPerturbation(net, **options).attribute(X[row : row + 1], row)
        torch.testing.assert_close(alone, maps[row : row + 1], rtol=0, atol=1e-8)
    for rows in (1, 2, 100):
        found = MeaningfulPerturbation(net, **options).attribute(X, [0, 1, 2], internal_batch_size=rows)
        torch.testing.assert_close(found, maps, rtol=0, atol=1e-8)
    other = MeaningfulPerturbation(net, **options, seed=1).attribute(X, [0, 1, 2])
    assert not torch.equal(other, maps)


@pytest.mark.parametrize("mode", ["deletion", "preservation"])
def test_a_constant_network_gives_an_empty_map(mode):
    found = MeaningfulPerturbation(lambda v: 0 * v.flatten(1)[:, :3], mode, budget=20).attribute(X, 1)
    assert not found.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": "logit"}, "score must be 'prob'"),
        ({"mode": "delete"}, "mode must be one of"),
        ({"replacement": "mean"}, "replacement must be one of"),
        ({"budget": 0}, "budget"),
        ({"scale": 0}, "scale"),
        ({"jitter": 0}, "jitter"),
        ({"lr": 0.0}, "lr"),
        ({"tv_beta": 0.0}, "tv_beta"),
        ({"blur": 0.0}, "blur"),
        ({"lam1": -1.0}, "lam1"),
        ({"lam2": float("nan")}, "lam2"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        MeaningfulPerturbation(network(), **options)


def test_pictures_only():
    with pytest.raises(ValueError, match=r"pictures \(N, C, H, W\).*got \(N, 8\)"):
        MeaningfulPerturbation(lambda v: v[:, :3]).attribute(torch.randn(2, 8), 1)
    with pytest.raises(ValueError, match=r"pictures .*got \(N, 8\) and \(N, 4\)"):
        MeaningfulPerturbation(lambda v, w: v[:, :3]).attribute((torch.randn(2, 8), torch.randn(2, 4)), 1)
