"""Limits of votes and what follows from them: against scipy, sampling of whole boxes, and Levine's certificate."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from moreaugrad.certificates import theory
from moreaugrad.certificates.theory import Box

shares = st.floats(0, 1)


def normal(box):
    return torch.special.ndtri(box.lower), torch.special.ndtri(box.upper)


def corners(box):
    """Every map of the box whose values are all at an end."""
    bits = torch.tensor(list(np.ndindex(*[2] * len(box.lower))), dtype=torch.float64)
    return box.lower + bits * (box.upper - box.lower)


def random_box(seed, size):
    torch.manual_seed(seed)
    lower = torch.rand(size, dtype=torch.float64) * (torch.rand(size) > 0.3)
    upper = lower + torch.rand(size, dtype=torch.float64) * torch.rand((), dtype=torch.float64)
    return lower + torch.rand(size, dtype=torch.float64) * (upper - lower), Box(lower, upper)


# ---- binomial limits ----


@pytest.mark.parametrize("samples", [1, 10, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-9])
def test_limits_are_those_of_clopper_and_pearson_rounded_outwards(samples, alpha):
    counts = torch.linspace(0, samples, min(samples + 1, 101)).long()
    lower, upper = theory.clopper_pearson(counts, samples, alpha)
    low = torch.tensor(np.nan_to_num(stats.beta.ppf(alpha, counts.double(), samples - counts.double() + 1), nan=0.0))
    high = torch.tensor(np.nan_to_num(stats.beta.isf(alpha, counts.double() + 1, samples - counts.double()), nan=1.0))
    for found, wanted in ((low - lower, low), (upper - high, 1 - high)):
        assert bool((found >= -1e-15).all())
        assert bool((found <= 1e-8 * wanted.clamp_min(1e-3)).all())


@given(st.integers(1, 3000), st.floats(0, 1), st.integers(-1, 3001))
def test_tails_are_binomial(samples, p, k):
    at = torch.tensor([float(k)], dtype=torch.float64)
    found = float(theory.upper_tail(at, samples, torch.tensor([p], dtype=torch.float64)))
    assert found == pytest.approx(stats.binom.sf(k - 1, samples, p), rel=1e-8, abs=1e-300)


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(1e-9, 0.4))
def test_predicted_counts_leave_out_no_more_than_alpha_on_either_side(samples, p, alpha):
    at = torch.tensor([p], dtype=torch.float64)
    least, most = (int(each) for each in theory.predict_counts(at, at, samples, alpha))
    assert stats.binom.cdf(least - 1, samples, p) <= alpha
    assert stats.binom.sf(most, samples, p) <= alpha
    assert stats.binom.cdf(least, samples, p) > alpha * (1 - 1e-6) or least == samples
    assert stats.binom.sf(most - 1, samples, p) > alpha * (1 - 1e-6) or most == 0


def test_they_are_narrower_than_chernoffs():
    counts = torch.arange(0, 1001, 50)
    box, means = theory.vote_box(counts, 1000, 0.001), counts.double() / 1000
    low, high = theory.kl(means, 1000, 0.001)
    assert bool((box.lower >= low - 1e-9).all())
    assert bool((box.upper <= high + 1e-9).all())
    middle = counts == 500
    assert float((box.upper - box.lower)[middle]) < 0.97 * float((high - low)[middle])


# ---- the shift ----


@given(shares, st.floats(0, 1), st.floats(0, 3))
def test_a_shift_moves_quantiles(p, width, distance):
    box = Box(torch.tensor([p], dtype=torch.float64), torch.tensor([min(1.0, p + width)], dtype=torch.float64))
    moved = theory.shift(box, distance)
    assert bool((moved.lower <= box.lower + 1e-12).all())
    assert bool((moved.upper >= box.upper - 1e-12).all())
    if p > 1e-3 and p + width < 1 - 1e-3 and distance < 2:
        for before, after, sign in zip(normal(box), normal(moved), (-1, 1), strict=True):
            assert float(after - before) == pytest.approx(sign * distance, abs=1e-5)


def test_certainty_stays_certain():
    box = theory.shift(Box(torch.ones(1).double(), torch.zeros(1).double()), 0.5)
    assert box.lower.item() == pytest.approx(1, abs=1e-11)
    assert box.upper.item() == pytest.approx(0, abs=1e-11)


# ---- what holds for every map of a box ----


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8))
def test_the_overlap_and_the_members_of_a_box(seed, size):
    values, box = random_box(seed, size)
    others = corners(box)
    for k in range(1, size + 1):
        sure, members = theory.box_overlap(values, box, k), theory.box_members(values, box, k)
        top = set(values.argsort(descending=True)[:k].tolist())
        # ties and zeros count against the claim, so that an entry is on top only if it is above all from rank k on
        least = min(len(top & _above(row, k)) for row in others)
        assert sure <= least
        assert set(members.nonzero().flatten().tolist()) <= set.intersection(*(_above(row, k) for row in others)) & top


def _above(row, k):
    return {i for i in range(len(row)) if row[i] > 0 and int((row >= row[i]).sum()) <= k}


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 8))
def test_the_overlap_is_attained(seed, size):
    """All that may leave can leave at once: a map of the box in which they do, made by hand."""
    values, box = random_box(seed, size)
    order = values.argsort(descending=True)
    for k in range(1, size):
        sure, worst = theory.box_overlap(values, box, k), values.clone()
        members, others = order[:k], order[k:]
        falls = members[box.lower[members].argsort()][: k - sure]
        rises = others[box.upper[others].argsort(descending=True)][: k - sure]
        worst[falls], worst[rises] = box.lower[falls], box.upper[rises]
        worst[[i for i in order.tolist() if i not in falls and i not in rises and i in members]] += 2  # out of the way
        left = {int(i) for i in falls if int((worst >= worst[i]).sum()) > k or worst[i] <= 0}
        assert len(left) == k - sure


def test_levines_certificate_is_the_same_overlap():
    torch.manual_seed(3)
    means = torch.rand(60, dtype=torch.float64)
    low, high = theory.kl(means, 4000, 0.01)
    radii = theory.overlap_radii(means, low, high, 12, sigma=0.5)
    for epsilon in np.linspace(0, 0.2, 41):
        box = theory.shift(Box(low, high), epsilon / 0.5)
        assert theory.box_overlap(means, box, 12) == int((radii > epsilon).sum())


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8))
def test_the_cosine_is_the_least_over_the_corners(seed, size):
    values, box = random_box(seed, size)
    found, others = theory.box_cosine(values, box), corners(box)
    if not bool((box.lower > 0).any()):
        assert found == -1
        return
    least = (others @ values / others.norm(dim=1) / values.norm()).min()
    assert found == pytest.approx(float(least), abs=1e-9)
    assert found <= float(least) + 1e-12
    inner = box.lower + torch.rand(100, size, dtype=torch.float64) * (box.upper - box.lower)
    assert bool((inner @ values / inner.norm(dim=1) / values.norm() >= found - 1e-12).all())
    assert bool(((inner - values).norm(dim=1) <= theory.box_distance(values, box)).all())
    gaps = (torch.nn.functional.normalize(inner) - values / values.norm()).norm(dim=1)
    assert bool((gaps <= theory.normal_distance(found) + 1e-9).all())


def test_the_cosine_of_units_that_occur_several_times():
    values, box = random_box(5, 6)
    sizes = torch.tensor([3, 1, 4, 1, 5, 2])
    wide = [each.repeat_interleave(sizes) for each in (values, *box)]
    others = corners(box).repeat_interleave(sizes, 1)
    least = (others @ wide[0] / others.norm(dim=1) / wide[0].norm()).min()
    assert theory.box_cosine(values, box, sizes) == pytest.approx(float(least), abs=1e-9)
    assert theory.box_cosine(wide[0], Box(*wide[1:])) <= float(least)  # entries that may part lower it


def test_the_cosine_of_many_entries_is_nearly_attained():
    values, box = random_box(7, 5000)
    found = theory.box_cosine(values, box)
    breaks = 2 * values / (box.lower + box.upper)
    least = min(
        float((other @ values) / other.norm() / values.norm())
        for kappa in breaks.quantile(torch.linspace(0, 1, 200, dtype=torch.float64)).tolist()
        for other in [torch.where(breaks < kappa, box.upper, box.lower)]
    )
    assert found <= least <= found + 1e-4


# ---- how many draws say anything ----


@pytest.mark.parametrize("compared", ["ideal", "computed"])
@pytest.mark.parametrize("distance", [0.0, 0.1, 1.0])
def test_fewer_draws_than_needed_tell_nothing_and_as_many_do(compared, distance):
    needed = theory.needed_samples(500, distance, 0.001, compared)
    for samples in (needed - 1, needed):
        counts = torch.tensor([samples] + [0] * 499)
        box = theory.reach(theory.vote_box(counts, samples, 0.001), distance, samples, 0.001, compared)
        assert theory.box_overlap(counts.double(), box, 1) == int(samples == needed)


def test_one_threshold_may_need_fewer_draws():
    alpha, units = 0.001, 500
    needed = theory.needed_samples(units, 0.2, alpha, eta=0.1)
    assert needed < theory.needed_samples(units, 0.2, alpha)
    sure = (alpha / (2 * units)) ** (1 / needed)
    assert torch.special.ndtr(torch.special.ndtri(torch.tensor(sure).double()) - 0.2) > 0.1
    with pytest.raises(ValueError, match="lower epsilon"):
        theory.needed_samples(units, 50.0, alpha)
