"""Metrics of one map: sparsity by closed forms, objects by hand, and the summary by a known distribution."""

import math

import numpy as np
import pytest
import torch
from small_maps import maps

from moreaugrad.metrics.localisation import energy_in_box, pointing_game, regions
from moreaugrad.metrics.sparsity import active_groups, gini, hoyer, nonzero_share
from moreaugrad.metrics.summary import Summary, summary


def rows(*lists):
    return torch.tensor(lists, dtype=torch.float64)


def test_share_of_nonzeros():
    assert nonzero_share(rows([0, 0, -3, 1e-9], [0, 0, 0, 0], [1, 1, 1, 1])).tolist() == [0.5, 0, 1]
    assert nonzero_share(rows([0, 0, -3, 1e-9], [0, 0, 0, 0]), tol=1e-3).tolist() == [0.25, 0]
    for tol in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="tol must be"):
            nonzero_share(maps(0), tol=tol)


def test_gini_and_hoyer_of_extremes():
    found = rows([2, -2, 2, 2], [0, 7, 0, 0], [0, 0, 0, 0])
    assert gini(found).tolist() == pytest.approx([0, 0.75, math.nan], nan_ok=True)
    assert hoyer(found).tolist() == pytest.approx([0, 1, math.nan], nan_ok=True)
    assert gini(rows([1, 2, 3])).tolist() == pytest.approx([2 / 9])
    assert hoyer(rows([3, 4])).tolist() == pytest.approx([(2**0.5 - 1.4) / (2**0.5 - 1)])
    assert gini(rows([5])).tolist() == [0]
    assert hoyer(rows([5])).isnan().all()


def test_gini_is_the_mean_difference_and_that_of_half_normals():
    x = maps(0, (2, 300))
    sizes = x.abs()
    slow = (sizes[:, :, None] - sizes[:, None]).abs().mean((1, 2)) / (2 * sizes.mean(1))
    torch.testing.assert_close(gini(x), slow)
    assert float(gini(maps(1, (1, 400_000)))) == pytest.approx(2**0.5 - 1, abs=3e-3)


@pytest.mark.parametrize("metric", [nonzero_share, gini, hoyer])
def test_sparsity_has_no_scale_and_no_order(metric):
    x = torch.where(maps(1) > 0, maps(0), 0)
    torch.testing.assert_close(metric(x * 1e-200), metric(x))
    for tol in (1e-2, 0.3) if metric is nonzero_share else ():
        assert torch.equal(metric(x * 1e-200, tol), metric(x, tol))
        assert (metric(x, tol) < metric(x)).all()
    torch.testing.assert_close(metric(x.flip(2, 3)), metric(x))


@pytest.mark.parametrize(
    "groups", [4, 5, "channels", torch.arange(12 * 14).view(12, 14) // 30, torch.arange(336) // 7 * 10]
)
def test_active_groups_are_counted_entry_by_entry(groups):
    def label(channel, row, column):
        if isinstance(groups, str):
            return channel
        if isinstance(groups, int):
            return row * groups // 12, column * groups // 14
        return int(groups[row, column] if groups.ndim == 2 else groups[(channel * 12 + row) * 14 + column])

    x = torch.where(maps(1).abs() > 2.2, maps(0), 0)
    every = {label(*entry) for entry in torch.ones_like(x[0]).nonzero().tolist()}
    wanted = [len({label(*entry) for entry in image.nonzero().tolist()}) / len(every) for image in x]
    torch.testing.assert_close(active_groups(x, groups), torch.tensor(wanted, dtype=torch.float64))
    assert active_groups(torch.zeros_like(x), groups).tolist() == [0, 0, 0]


def test_active_groups_of_each_image_its_own():
    labels = torch.stack([torch.zeros(4, 4), torch.arange(16).view(4, 4) * 3]).long()
    x = torch.zeros(2, 4, 4)
    x[:, 1, 2], x[:, 3, 3] = 1, 1e-6
    assert active_groups(x, labels).tolist() == [1, 2 / 16]
    assert active_groups(x, labels, tol=1e-3).tolist() == [1, 1 / 16]
    for wrong, error in [("superpixels", "label map"), (torch.zeros(3, 3, dtype=torch.long), "cover the whole input")]:
        with pytest.raises(ValueError, match=error):
            active_groups(x, wrong)


def point(row, column, size=224):
    found = torch.zeros(1, 3, size, size)
    found[0, 1, row, column] = -2
    return found


def test_pointing_within_the_tolerance():
    box = torch.tensor([[100, 100, 120, 110]])  # columns 100..119, rows 100..109
    hits = {(105, 110): 1, (100, 100): 1, (109, 119): 1, (86, 110): 1, (85, 110): 0, (124, 110): 0, (123, 110): 1,
            (105, 134): 0, (105, 133): 1, (100 - 9, 100 - 12): 0, (100 - 9, 100 - 11): 1}  # fmt: skip
    for place, wanted in hits.items():
        assert float(pointing_game(point(*place), box)) == wanted, place
    assert float(pointing_game(point(109, 119), box, tolerance=0)) == 1
    assert float(pointing_game(point(110, 119), box, tolerance=0)) == 0


def test_the_tolerance_shrinks_with_the_picture_but_does_not_grow():
    box = torch.tensor([[0, 0, 1, 1]])
    assert float(pointing_game(point(0, 3, 56), box)) == 1  # below 15 * 56 / 224 = 3.75
    assert float(pointing_game(point(0, 4, 56), box)) == 0
    assert float(pointing_game(point(0, 15, 448), box)) == 0


def test_nothing_to_point_at_is_undefined():
    box = torch.tensor([[0, 0, 5, 5]])
    assert math.isnan(float(pointing_game(torch.zeros(1, 20, 20), box)))
    assert math.isnan(float(pointing_game(torch.ones(1, 20, 20), box)))
    assert math.isnan(float(pointing_game(point(3, 3, 20), [[]])))
    assert math.isnan(float(energy_in_box(point(3, 3, 20), [[]])))
    assert math.isnan(float(energy_in_box(torch.zeros(1, 20, 20), box)))


def test_signed_maps_may_point_at_their_largest_value():
    x = point(5, 5, 20)
    x[0, 0, 15, 15] = 1
    box = torch.tensor([[15, 15, 16, 16]])
    assert float(pointing_game(x, box)) == 0
    assert float(pointing_game(x, box, signed=True)) == 1


def test_energy_by_hand_and_every_way_to_name_an_object():
    x = torch.zeros(2, 2, 4, 6, dtype=torch.float64)
    x[:, 0, 1, 2], x[:, 1, 1, 3], x[:, 0, 3, 5] = -1, 2, 5
    boxes = torch.tensor([[2, 1, 4, 2], [5, 3, 6, 4]])
    mask = torch.zeros(2, 4, 6, dtype=torch.bool)
    mask[0, 1, 2:4], mask[1, 3, 5] = True, True
    ways = [boxes, mask, boxes.tolist(), [boxes[0], [[5, 3, 6, 4], [0, 0, 1, 1]]], boxes[:, None], boxes.float() + 0.4]
    for way in ways:
        assert energy_in_box(x, way).tolist() == pytest.approx([3 / 8, 5 / 8])
    overlapping = [[[2, 1, 4, 2], [3, 1, 4, 2]], [[-9, -9, 99, 99]]]
    assert energy_in_box(x, overlapping).tolist() == pytest.approx([3 / 8, 1])
    assert torch.equal(regions(boxes, (2, 4, 6)), mask)


def test_wrong_boxes_are_refused():
    x = maps(0)
    with pytest.raises(ValueError, match="given for each image, got 2 for 3"):
        energy_in_box(x, torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"left < right.*width, height"):
        energy_in_box(x, torch.tensor([[5, 5, 2, 2]] * 3))
    with pytest.raises(ValueError, match="left < right"):
        energy_in_box(x, torch.full((3, 4), torch.nan))
    with pytest.raises(ValueError, match=r"must have shape \(3, 12, 14\)"):
        energy_in_box(x, torch.zeros(3, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="got shape"):
        energy_in_box(x, torch.zeros(3, 5))
    with pytest.raises(TypeError, match="boxes must be"):
        energy_in_box(x, "left")
    with pytest.raises(TypeError, match="boxes must be"):
        energy_in_box(x, ["left", None, "right"])
    with pytest.raises(ValueError, match="tolerance"):
        pointing_game(x, torch.tensor([[0, 0, 1, 1]] * 3), tolerance=-1)


def test_summary_by_hand():
    found = summary(torch.tensor([3.0, torch.nan, 1.0, 2.0, 10.0]))
    assert (found.mean, found.median, found.count, found.undefined) == (4, 2.5, 4, 1)
    assert 1 <= found.low <= 2.5 <= found.high <= 10
    assert "1 undefined" in str(found)
    assert summary([5.0]) == Summary(5, 5, 5, 5, 1, 0)
    empty = summary(np.array([np.nan, np.nan]))
    assert empty.undefined == 2
    assert math.isnan(empty.median)
    assert summary(torch.tensor([1.0, 2.0, torch.inf])).median == 2


def test_interval_is_that_of_the_order_statistics():
    """The median of n draws from n figures is at most the j-th with a binomial probability."""
    from scipy.stats import binom

    n, confidence = 101, 0.9
    found = summary(np.arange(n), confidence, draws=20_000)
    at_most = np.array([1 - binom.cdf(n // 2, n, (j + 1) / n) for j in range(n)])  # more than half of the draws <= j
    assert abs(found.low - np.argmax(at_most >= 0.05)) <= 1
    assert abs(found.high - np.argmax(at_most >= 0.95)) <= 1


def test_interval_covers_the_median_of_a_known_distribution():
    random = np.random.default_rng(0)
    hits = 0
    for run in range(400):
        found = summary(random.exponential(size=80), draws=300, seed=run)
        hits += found.low <= math.log(2) <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_summary_is_seeded_and_bounded_in_memory(monkeypatch):
    values = np.random.default_rng(1).normal(size=50)
    first = summary(values)
    assert first == summary(torch.from_numpy(values))
    assert first != summary(values, seed=1)
    monkeypatch.setattr("moreaugrad.metrics.summary.AT_ONCE", 500)
    assert summary(values) == first  # the same stream, in parts


@pytest.mark.parametrize(
    ("options", "error"),
    [({"confidence": 1.0}, "below 1"), ({"confidence": 0}, "positive"), ({"draws": 0}, "at least")],
)
def test_wrong_summaries_are_refused(options, error):
    with pytest.raises(ValueError, match=error):
        summary([1.0, 2.0], **options)
    with pytest.raises(ValueError, match="one per image"):
        summary(torch.zeros(2, 2))


@pytest.mark.parametrize("boxes", [(0.1, 2.0), [torch.tensor(3.0)] * 2, [torch.zeros(2, 2, 4)] * 2], ids=str)
def test_boxes_are_rows_of_four(boxes):
    with pytest.raises(ValueError, match=r"boxes must be .* got shape"):
        energy_in_box(maps(0)[:2], boxes)


@pytest.mark.parametrize("values", [None, ["a"], [[1], [2, 3]], {"a": 1}, object()])
def test_a_summary_is_of_numbers(values):
    with pytest.raises(TypeError, match="values must be a list of numbers"):
        summary(values)
