"""Attacks that move the centre of a map, or draw it into a region: closed forms, slopes, bad input."""

import numpy as np
import pytest
import torch
from attacked_networks import Quadratic, Seeing, convolutional, gradient, least_share, pictures
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.mass_centre import MassCentre, centre
from moreaugrad.attacks.region import Region
from moreaugrad.attacks.topk import TopK


def plane(maps):
    """|map| summed over channels, of sum 1, in plain numbers: one list of rows per image."""
    size = maps.abs().sum(1)
    return [(one / one.sum()).tolist() for one in size]


def centre_by_hand(maps):
    return torch.tensor(
        [
            [
                sum(i * v for i, row in enumerate(one) for v in row),
                sum(j * v for row in one for j, v in enumerate(row)),
            ]
            for one in plane(maps)
        ],
        dtype=maps.dtype,
    )


def share_by_hand(maps, inside):
    return torch.tensor(
        [
            sum(v for row, flags in zip(one, mask, strict=True) for v, flag in zip(row, flags, strict=True) if flag)
            for one, mask in zip(plane(maps), inside.tolist(), strict=True)
        ],
        dtype=maps.dtype,
    )


# ---- the centre of mass


def test_centre_of_single_pixels_and_of_known_planes():
    for row, column in ((0, 0), (2, 5), (7, 1)):
        one = torch.zeros(1, 3, 8, 8)
        one[0, 1, row, column] = -4.0
        assert centre(one).tolist() == [[row, column]]
    assert centre(torch.ones(1, 2, 5, 8)).tolist() == [[2.0, 3.5]]
    maps = pictures()
    torch.testing.assert_close(centre(maps), centre_by_hand(maps))
    torch.testing.assert_close(centre(-7 * maps), centre(maps))
    assert centre(torch.zeros(1, 3, 8, 8)).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("act", [nn.ReLU, nn.Softplus])
@pytest.mark.parametrize("options", [{}, {"rule": "sign"}, {"norm": "linf"}, {"step_size": 0.2}])
def test_shift_is_the_definitions_on_the_network_itself(options, act):
    """Also by steps from the input itself, where the squared shift of a smooth network has no slope."""
    net, x = convolutional(act).double(), pictures()
    found = MassCentre(mg.Gradient(net), 0.5, steps=6, **options).perturb(x)
    shift = centre_by_hand(gradient(net, found.x, found.target)) - centre_by_hand(gradient(net, x, found.target))
    torch.testing.assert_close(found.objective, -shift.square().sum(1))
    assert found.trace[0].eq(0).all()
    assert found.success.all()
    assert found.kept.all()


def test_farthest_centre_in_a_cube_is_a_corner():
    """Map x on one row of pixels: C = sum j x_j / sum x_j is farthest where x is pushed up on one side of C and down
    on the other. All corners of that form are tried; some restart finds the best, and each ends in one of two."""
    x = torch.tensor([1.3, 0.9, 1.6, 1.1, 0.8, 1.2], dtype=torch.float64).view(1, 1, 1, 6)
    places, epsilon = torch.arange(6.0, dtype=torch.float64), 0.4

    def middle(at):
        return float((places * at).sum() / at.sum())

    start = middle(x.flatten())
    corners = [x.flatten() + side * epsilon * (places - cut).sign() for cut in np.arange(-0.5, 6) for side in (-1, 1)]
    shifts = [middle(corner) - start for corner in corners]
    ends = sorted([-(max(shifts) ** 2), -(min(shifts) ** 2)])
    model = Quadratic(torch.ones(1, 1, 6, dtype=torch.float64))
    one_each = [MassCentre(mg.Gradient(model), epsilon, norm="linf", steps=30, seed=s).perturb(x) for s in range(6)]
    for found in one_each:
        assert min(abs(float(found.objective) - end) for end in ends) < 1e-9
    both = MassCentre(mg.Gradient(model), epsilon, norm="linf", steps=30, restarts=6).perturb(x)
    assert float(both.objective) == pytest.approx(ends[0], abs=1e-9)


def test_a_map_of_zeros_has_no_centre_and_never_counts_as_moved(caplog):
    class Constant(nn.Module):
        def forward(self, v):
            return torch.stack([v.flatten(1).sum(1) * 0 + 1, v.flatten(1).sum(1) * 0], 1)

    x = pictures(2)
    found = MassCentre(mg.Gradient(Constant().eval()), 1.0, steps=2).perturb(x)
    assert torch.equal(found.x, x)
    assert found.objective.eq(0).all()
    assert not found.success.any()
    assert "slope of the attack is zero" in caplog.text
    attack = MassCentre(mg.Gradient(convolutional()), 1.0)
    clean = pictures(2)
    fixed = attack.reference(torch.cat([clean, 0 * clean[:1]]), None, None)
    maps = torch.cat([clean[:1] * 0, clean[:1], clean[:1]])
    value = attack.objective(maps, fixed)
    assert value[0] == 0  # moved to nowhere
    assert value[1] < 0
    assert value[2] == 0  # came from nowhere


# ---- regions


def test_share_is_the_definitions_on_the_network_itself():
    net, x = convolutional().double(), pictures()
    inside = torch.zeros(8, 8, dtype=torch.bool)
    inside[5:, 1:4] = True
    for options in ({}, {"rule": "sign"}, {"norm": "linf"}):
        found = Region(mg.Gradient(net), 0.5, region=inside, steps=6, **options).perturb(x)
        everywhere = inside.expand(3, 8, 8)
        torch.testing.assert_close(found.trace[0], -share_by_hand(gradient(net, x, found.target), everywhere))
        torch.testing.assert_close(found.objective, -share_by_hand(gradient(net, found.x, found.target), everywhere))
        assert found.success.all()
        assert found.kept.all()


D = torch.linspace(0.5, 2.0, 16, dtype=torch.float64).view(1, 4, 4)
SIZE = torch.rand(2, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1.2
SIGNS = torch.randn(2, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).sign()
CORNER = torch.zeros(4, 4, dtype=torch.bool)
CORNER[:2, 1:4] = True


def test_largest_share_in_a_cube_is_a_corner():
    x = SIZE * SIGNS
    found = Region(mg.Gradient(Quadratic(D)), 0.3, norm="linf", steps=4, region=CORNER).perturb(x)
    wanted = x + 0.3 * torch.where(CORNER, x.sign(), -x.sign())
    torch.testing.assert_close(found.x, wanted, rtol=0, atol=1e-12)


def test_largest_share_in_a_ball_is_known():
    """As much as possible in the region is as little as possible elsewhere."""
    found = Region(mg.Gradient(Quadratic(D)), 0.5, steps=60, region=CORNER).perturb(SIZE * SIGNS)
    for row in range(2):
        wanted = least_share(D.flatten(), SIZE[row].flatten(), ~CORNER.flatten(), 0.5) - 1
        assert float(found.objective[row]) >= wanted - 1e-12
        assert float(found.objective[row]) - wanted < 1e-3 * (float(found.trace[0, row]) - wanted)
    assert found.l2.tolist() == pytest.approx([0.5, 0.5])


def test_boxes_and_masks_of_all_forms_say_the_same():
    """left, top, right, bottom, as in the metrics of localisation."""
    net, x = convolutional(nn.Softplus).double(), pictures()
    mask = torch.zeros(8, 8, dtype=torch.bool)
    mask[2:5, 1:7] = True
    forms = [
        mask, mask.numpy(), mask.expand(3, 8, 8), (1, 2, 7, 5), [1.0, 2.0, 7.0, 5.0], torch.tensor([1, 2, 7, 5]),
        torch.tensor([[1, 2, 7, 5]] * 3), np.array([[1, 2, 7, 5]] * 3),
    ]  # fmt: skip
    found = [Region(mg.Gradient(net), 0.5, region=form, steps=2).perturb(x).x for form in forms]
    assert all(torch.equal(one, found[0]) for one in found[1:])


def test_each_image_has_its_own_region():
    net, x = convolutional(nn.Softplus).double(), pictures()
    boxes = torch.tensor([[0, 0, 3, 3], [5, 5, 8, 8], [0, 6, 8, 8]])
    together = Region(mg.Gradient(net), 0.5, region=boxes, steps=2).perturb(x)
    for row in range(3):
        alone = Region(mg.Gradient(net), 0.5, region=boxes[row], steps=2).perturb(x[row : row + 1])
        assert torch.equal(alone.x, together.x[row : row + 1])


def test_maps_of_layers_are_drawn_too():
    from layer_networks import averaging

    net, x = averaging(), pictures(2)
    for attack in (MassCentre(mg.GradCam(net), 1.0, steps=5), Region(mg.Cam(net), 1.0, steps=5, region=(0, 0, 4, 4))):
        assert attack.perturb(x).success.all()


# ---- both


@pytest.mark.parametrize(
    "attack",
    [
        TopK(mg.Gradient(convolutional()), 1.0, k=20),
        TopK(mg.Gradient(convolutional()), 1.0, k=9, per_pixel=True),
        MassCentre(mg.Gradient(convolutional()), 1.0),
        Region(mg.Gradient(convolutional()), 1.0, region=(0, 0, 4, 4)),
    ],
    ids=lambda attack: type(attack).__name__,
)
def test_slopes_of_the_objectives_are_right(attack):
    clean = pictures(2, size=5)
    ball = type("Ball", (), {"x": clean})
    fixed = attack.reference(clean, None, ball)
    maps = pictures(2, seed=9, size=5).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: attack.objective(m, fixed), maps)


@pytest.mark.parametrize("kind", [MassCentre, Region])
def test_inputs_without_places_are_refused_before_any_call(kind):
    calls = []
    options = {"region": (0, 0, 2, 2)} if kind is Region else {}
    net = Seeing(nn.Linear(6, 3).eval(), calls.append)
    with pytest.raises(ValueError, match=r"needs images \(N, C, H, W\).*use 'topk'"):
        kind(mg.Gradient(net), 1.0, **options).perturb(torch.randn(2, 6))
    assert not calls


MASK = torch.zeros(8, 8, dtype=torch.bool)


@pytest.mark.parametrize(
    ("region", "error", "message"),
    [
        ("left", TypeError, "region must be a boolean mask"),
        (None, TypeError, "region must be a boolean mask"),
        ((1, 2, 3), ValueError, "region must be a boolean mask"),
        (torch.rand(8, 8), ValueError, "region must be a boolean mask"),
        (MASK[None, None], ValueError, "region must be a boolean mask"),
    ],
)
def test_regions_that_are_none_are_refused_at_once(region, error, message):
    with pytest.raises(error, match=message):
        Region(mg.Gradient(convolutional()), 1.0, region=region)


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (MASK, "3 empty and 0 whole"),
        (~MASK, "0 empty and 3 whole"),
        ((0, 0, 8, 8), "0 empty and 3 whole"),
        ((20, 20, 30, 30), "3 empty"),
        ((4, 4, 2, 6), "left < right"),
        (MASK[:7], r"\(8, 8\) or \(3, 8, 8\), got \(7, 8\)"),
        (MASK.expand(2, 8, 8), r"got \(2, 8, 8\)"),
        (torch.tensor([[0, 0, 2, 2]] * 2), "got 2 for 3 images"),
    ],
)
def test_regions_that_do_not_fit_are_refused_before_any_call(region, message):
    calls = []
    net = Seeing(convolutional().double(), calls.append)
    with pytest.raises(ValueError, match=message):
        Region(mg.Gradient(net), 1.0, region=region).perturb(pictures())
    assert not calls


def test_a_region_must_be_given():
    with pytest.raises(TypeError, match="region"):
        Region(mg.Gradient(convolutional()), 1.0)
