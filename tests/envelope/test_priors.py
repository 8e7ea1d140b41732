"""Laws that hold for every prior, and for the groups they are made of."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import soft, soft_groups

from moreaugrad.envelope.groups import make_groups
from moreaugrad.envelope.priors import PRIORS
from moreaugrad.envelope.priors_group import Group
from moreaugrad.envelope.priors_l1 import L1
from moreaugrad.envelope.priors_zero import Zero

LABELS = torch.tensor([0, 1, 0, 2, 1, 2])
EXAMPLES = {"zero": Zero(), "l1": L1(), "group": Group(LABELS[None], (3,))}
entries = st.lists(st.floats(-10, 10), min_size=12, max_size=12)
batches = entries.map(lambda numbers: torch.tensor(numbers, dtype=torch.float64).view(2, 6))
amounts = st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)).map(lambda a: torch.tensor(a, dtype=torch.float64))


def test_every_prior_has_an_example():
    assert set(EXAMPLES) == set(PRIORS)


@pytest.mark.parametrize("prior", EXAMPLES.values(), ids=EXAMPLES.keys())
@given(at=batches, other=batches, amount=amounts)
def test_prox_minimises_its_own_objective(prior, at, other, amount):
    def objective(delta):
        return amount * prior.value(delta) + (delta - at).square().flatten(1).sum(1) / 2

    assert (objective(prior.prox(at, amount)) <= objective(other) + 1e-9).all()


@pytest.mark.parametrize("prior", EXAMPLES.values(), ids=EXAMPLES.keys())
@given(a=batches, b=batches, amount=amounts)
def test_prox_is_firmly_nonexpansive(prior, a, b, amount):
    moved = prior.prox(a, amount) - prior.prox(b, amount)
    assert (moved.square().sum(1) <= (moved * (a - b)).sum(1) + 1e-9).all()


@pytest.mark.parametrize("name", ["l1", "group"])
@given(u=batches, keep=st.sampled_from([0.2, 1 / 3, 0.5, 2 / 3, 1.0]))
def test_level_keeps_the_asked_share_of_units(name, u, keep):
    prior = EXAMPLES[name]
    units = prior.units(u)
    kept = prior.units(prior.prox(u, prior.level(u, keep))) > 0
    asked = max(1, round(keep * units.shape[1]))
    for row, sizes in zip(kept, units, strict=True):
        clear = sizes.sort(descending=True).values
        if asked == len(sizes):
            assert row.sum() == (sizes > 0).sum()
        elif clear[asked - 1] > clear[asked] * (1 + 1e-9) + 1e-12:
            assert row.sum() == asked
        else:
            assert row.sum() <= asked


@given(u=batches, amount=amounts)
def test_thresholds_agree_with_their_definitions(u, amount):
    for row in range(2):
        one, by = u[row : row + 1], amount[row : row + 1]
        torch.testing.assert_close(EXAMPLES["l1"].prox(one, by), soft(one, float(by)))
        torch.testing.assert_close(EXAMPLES["group"].prox(one, by), soft_groups(one, LABELS, float(by)))


def test_groups_of_one_entry_are_l1():
    u = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    singles = make_groups(torch.arange(32), u)
    amount = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(singles.prox(u, amount), L1().prox(u, amount))


def test_grid_pools_channels_and_allows_uneven_edges():
    labels = make_groups(3, torch.zeros(1, 2, 7, 8)).labels.view(2, 7, 8)
    assert torch.equal(labels[0], labels[1])
    assert labels.unique().tolist() == list(range(9))
    rows = [int((labels[0, :, 0] == k).sum()) for k in labels[0, :, 0].unique()]
    assert sorted(rows) == [2, 2, 3]
    assert (labels[0, 0] <= labels[0, 0].roll(-1)).sum() >= 7  # blocks are runs, left to right


def test_grid_of_16_on_224_is_blocks_of_14():
    labels = make_groups(16, torch.zeros(1, 3, 224, 224)).labels.view(3, 224, 224)
    assert labels.unique(return_counts=True)[1].tolist() == [14 * 14 * 3] * 256
    assert torch.equal(labels[0, 14:28, 28:42], torch.full((14, 14), 18))


def test_grid_finer_than_the_image_gives_one_group_per_pixel():
    prior = make_groups(16, torch.zeros(1, 3, 5, 5))
    assert prior.counts == (25,)


def test_channels_and_label_maps():
    x = torch.zeros(2, 3, 4, 4)
    assert make_groups("channels", x).labels.view(3, 16).unique(dim=1).flatten().tolist() == [0, 1, 2]
    plane = torch.arange(16).view(4, 4) // 8
    assert torch.equal(make_groups(plane, x).labels.view(3, 4, 4)[2], plane)
    each = torch.stack([plane, plane.T])
    per_image = make_groups(each, x).labels.view(2, 3, 4, 4)
    assert torch.equal(per_image[1, 0], plane.T)


def test_superpixels_follow_the_image():
    x = torch.zeros(1, 3, 32, 32)
    x[:, :, :, 16:] = 1
    labels = make_groups("superpixels", x).labels.view(3, 32, 32)[0]
    left, right = set(labels[:, :16].unique().tolist()), set(labels[:, 16:].unique().tolist())
    assert not left & right


def test_group_norms_of_large_groups_are_exact():
    u = torch.full((1, 100_000), 1e-3)
    norms = Group(torch.zeros(1, 100_000, dtype=torch.long), (1,)).units(u)
    assert float(norms) == pytest.approx(1e-3 * 100_000**0.5, rel=1e-6)
