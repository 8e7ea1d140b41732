"""Metrics of two maps, entry by entry, against closed forms and SciPy, and the flaws of published code they avoid."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from small_maps import maps

from moreaugrad.metrics import METRICS
from moreaugrad.metrics.similarity import (
    cosine,
    kl_divergence,
    normalised_distance,
    pearson,
    ranks,
    spearman,
    top_entries,
    topk_intersection,
)


def rows(*lists):
    return torch.tensor(lists, dtype=torch.float64)


def test_distance_ignores_scale_and_the_sign_unless_signed():
    a = maps(0)
    assert (normalised_distance(a, 3.7 * a) < 1e-14).all()
    assert (normalised_distance(a, -2 * a) < 1e-14).all()
    torch.testing.assert_close(normalised_distance(a, -2 * a, signed=True), torch.full((3,), 2.0).double())
    assert float(normalised_distance(rows([1, 0, 0]), rows([0, -5, 0]))) == pytest.approx(2**0.5, abs=1e-15)
    assert float(normalised_distance(rows([3, 4]), rows([4, 3]))) == pytest.approx(0.2 * 2**0.5, abs=1e-15)


@pytest.mark.parametrize("signed", [True, False])
def test_distance_is_the_angle(signed):
    angle = cosine(maps(0), maps(1), signed)
    torch.testing.assert_close(normalised_distance(maps(0), maps(1), signed), (2 - 2 * angle).sqrt())
    a, b = ((each if signed else each.abs()).flatten(1) for each in (maps(0), maps(1)))
    torch.testing.assert_close(angle, torch.nn.functional.cosine_similarity(a, b))


def test_distance_of_zero_maps():
    zero, some = torch.zeros(2, 5), torch.ones(2, 5)
    assert normalised_distance(zero, zero).tolist() == [0, 0]
    assert normalised_distance(zero, some).tolist() == pytest.approx([1, 1], abs=1e-7)
    assert normalised_distance(some, zero).tolist() == pytest.approx([1, 1], abs=1e-7)


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("name", ["normalised_distance", "cosine", "pearson", "spearman", "ssim", "centre_shift"])
def test_tiny_and_huge_maps_are_compared_as_others_are(name, factor):
    wanted = METRICS[name](maps(0), maps(1))
    torch.testing.assert_close(METRICS[name](maps(0) * factor, maps(1)), wanted, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(METRICS[name](maps(0) * factor, maps(1) * factor), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("signed", [True, False])
def test_correlations_are_scipys_with_ties_too(levels, signed):
    generator = torch.Generator().manual_seed(levels)
    a, b = torch.randint(-levels, levels, (2, 4, 3, 7, 7), generator=generator)
    for ours, theirs in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        found = ours(a.double(), b.double(), signed)
        for image in range(4):
            pair = [(each[image] if signed else each[image].abs()).flatten().numpy() for each in (a, b)]
            assert float(found[image]) == pytest.approx(theirs(*pair).statistic, abs=1e-13)


def test_ranks_are_scipys():
    x = torch.randint(0, 6, (5, 40), generator=torch.Generator().manual_seed(0)).double()
    assert np.array_equal(ranks(x).numpy() + 1, stats.rankdata(x.numpy(), axis=1))


def test_correlations_of_constants():
    constant, other, some = rows([2, 2, 2]), rows([-7, 7, -7]), rows([1, 2, 4])
    for metric in (pearson, spearman):
        assert float(metric(constant, other)) == 1  # constant in size
        assert math.isnan(float(metric(constant, other, signed=True)))
        assert math.isnan(float(metric(constant, some)))
        assert math.isnan(float(metric(some, constant)))
        assert float(metric(some, some**3)) > 0.9
        assert float(metric(some, -some, signed=True)) == pytest.approx(-1)
    assert float(spearman(some, some**3)) == pytest.approx(1, abs=1e-15)


def test_nearly_constant_maps_keep_their_digits():
    a, b = 1 + 1e-12 * maps(0), 1 + 1e-12 * maps(1)
    torch.testing.assert_close(pearson(a, b), pearson(a - 1, b - 1, signed=True), rtol=1e-13, atol=1e-14)


def test_relative_entropy():
    p, q = maps(0).abs(), maps(1).abs()
    p, q = (each / each.flatten(1).sum(1).view(-1, 1, 1, 1) for each in (p, q))
    torch.testing.assert_close(kl_divergence(5 * p, q), (p * (p / q).log()).flatten(1).sum(1))
    assert float(kl_divergence(rows([1, 1]), rows([1, 0]))) == math.inf
    assert float(kl_divergence(rows([1, 0]), rows([1, 1]))) == pytest.approx(math.log(2))


def test_topk_counts_by_hand():
    a, b = rows([5, -4, 3, 0, 1, 0]), rows([0, 9, 8, 7, 0, 0])
    assert float(topk_intersection(a, b, k=1)) == 0  # {0}, {1}
    assert float(topk_intersection(a, b, k=2)) == 0.5  # {0, 1}, {1, 2}
    assert float(topk_intersection(a, b, k=3)) == pytest.approx(2 / 3)  # {0, 1, 2}, {1, 2, 3}
    assert float(topk_intersection(a, b, k=0.5)) == pytest.approx(2 / 3)  # half of six entries
    assert float(topk_intersection(a, b)) == 0  # floor(.4 * 4 non-zeros) = 1
    assert float(topk_intersection(a, b, k=6)) == 0.5  # four non-zeros: {0, 1, 2, 4}, {1, 2, 3}


def test_a_signed_map_is_like_itself():
    """Top entries of signed values, less those that are not positive, but divided by k, would give .83 here."""
    a = maps(0, (1, 1, 400, 400))
    flat, k = a.flatten(), 96_000
    published = float((flat.topk(k).values > 0).sum()) / k
    assert published == pytest.approx(0.5 / 0.6, abs=0.01)
    assert float(topk_intersection(a, a, k=0.6)) == 1
    assert float(topk_intersection(a, -a, k=0.6)) == 1


def test_topk_of_disjoint_random_and_permuted_maps():
    a, b = maps(0, (2, 40_000)), maps(1, (2, 40_000))
    left, right = a.clone(), b.clone()
    left[:, 20_000:], right[:, :20_000] = 0, 0
    assert topk_intersection(left, right).tolist() == [0, 0]
    for k in (0.1, 0.25, 0.4):
        spread = 5 * (k * (1 - k) / (k * 40_000)) ** 0.5
        assert topk_intersection(a, b, k=k).tolist() == pytest.approx([k, k], abs=spread)
    order = torch.randperm(40_000, generator=torch.Generator().manual_seed(2))
    assert torch.equal(topk_intersection(a[:, order], b[:, order]), topk_intersection(a, b))


def test_topk_of_zero_and_sparser_maps():
    zero, some, few = torch.zeros(1, 10), torch.arange(1.0, 11)[None], torch.zeros(1, 10)
    few[0, 9] = 1
    assert float(topk_intersection(zero, zero)) == 1
    assert math.isnan(float(topk_intersection(zero, some)))
    assert math.isnan(float(topk_intersection(some, zero)))
    assert float(topk_intersection(some, few)) == 0.25  # one of k = 4
    assert float(topk_intersection(few, some)) == 1  # k = 1
    assert float(topk_intersection(few, few, k=8)) == 1


def test_ties_go_by_index():
    sizes = rows([1, 2, 2, 2, 0])
    assert top_entries(sizes, torch.tensor([2])).tolist() == [[False, True, True, False, False]]
    assert top_entries(sizes, torch.tensor([5])).tolist() == [[True, True, True, True, False]]


def test_shares_are_not_cut_by_rounding():
    """29 % of 100 entries are 29, though 0.29 * 100 is below 29 in floating point."""
    a, b = torch.arange(100.0)[None], torch.arange(100.0)[None]
    b[0, 71] = 0  # the 29th largest
    for k in (0.29, np.float64(0.29), 29, np.int64(29)):
        assert float(topk_intersection(a, b, k=k)) == pytest.approx(28 / 29)
    assert float(topk_intersection(a, b, k=np.float32(0.5))) == pytest.approx(49 / 50)


def test_topk_per_pixel():
    a = torch.zeros(1, 2, 2, 2, dtype=torch.float64)
    a[0, :, 0, 0], a[0, 0, 1, 1] = torch.tensor([3.0, -3.0]), 5.0
    b = torch.zeros_like(a)
    b[0, 1, 0, 0] = 1
    assert float(topk_intersection(a, b, k=1, per_pixel=True)) == 1
    assert float(topk_intersection(a, b, k=1)) == 0
    with pytest.raises(ValueError, match="must be pictures"):
        topk_intersection(rows([1, 2]), rows([1, 2]), per_pixel=True)


@pytest.mark.parametrize("k", [0, -3, 337, 0.0, 1.5, -0.1, math.nan])
def test_impossible_k_is_refused(k):
    with pytest.raises(ValueError, match="k must be"):
        topk_intersection(maps(0), maps(1), k=k)


@pytest.mark.parametrize("k", ["0.4", True, [3]])
def test_k_of_another_kind_is_refused(k):
    with pytest.raises(TypeError, match="k must be a number"):
        topk_intersection(maps(0), maps(1), k=k)
