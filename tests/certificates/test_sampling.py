"""Errors of averages and the certificate of Sparsified SmoothGrad: worked numbers, coverage, exhaustive searches.

Coverage is judged by a binomial limit: a bound that fails more often than alpha would pass it once in a thousand.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, norm
from torch import nn

import moreaugrad as mg
from moreaugrad.certificates import theory as cert
from moreaugrad.certificates.theory.noise import PROXY, kl_lower

ALPHA = 0.05
PHI0 = 1 / math.sqrt(2 * math.pi)


def near(value):
    return pytest.approx(value, rel=1e-6, abs=0)


def allowed(runs):
    """The failures that a bound of level ALPHA stays within, but once in a thousand times."""
    return binom.ppf(0.999, runs, ALPHA)


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


# ---- one average ----


def test_t11_intervals():
    assert cert.kl_interval(0.95, 1000, 0.001) == near((0.918509917, 0.972436533))
    assert cert.kl_interval(1, 1000, 0.001) == near((0.992427911, 1))
    assert cert.kl_interval(0, 1000, 0.001) == near((0, 1 - 0.992427911))


@given(st.floats(0, 1), st.integers(1, 10**6), st.floats(1e-6, 0.9))
def test_intervals_end_where_the_divergence_says(p, m, alpha):
    low, high = cert.kl_interval(p, m, alpha)
    assert 0 <= low <= p <= high <= 1

    def distance(q):
        return sum(a * math.log(a / b) for a, b in ((p, q), (1 - p, 1 - q)) if a > 0) if 0 < q < 1 else math.inf

    for end, trivial in ((low, 0), (high, 1)):
        if end != trivial and 1e-12 < end < 1 - 1e-12:
            assert m * distance(end) == pytest.approx(math.log(2 / alpha), rel=1e-5)
    if p > 0:
        assert low > 0 or p < 1e-6 or math.log(2 / alpha) / m / p > 20


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.95, 0.999])
def test_coverage_of_votes_is_exact(p):
    """Every count of 40 votes with its probability: no simulation is needed."""
    counts = np.arange(41)
    chance = binom.pmf(counts, 40, p)
    kl = sum(c for c, k in zip(chance, counts, strict=True) if not _holds(cert.kl_interval(k / 40, 40, ALPHA), p))
    assert kl <= ALPHA
    low = exact_lower(counts, 40, ALPHA / 2)
    high = 1 - low[::-1]
    exact = chance[(low > p) | (high < p)].sum()
    assert exact <= ALPHA
    assert kl <= exact + 1e-12  # Chernoff's interval holds the exact one


def _holds(interval, p):
    return interval[0] <= p <= interval[1]


def exact_lower(counts, samples, level):
    """The p at which P(Bin(samples, p) >= count) = level."""
    return np.where(counts > 0, beta.ppf(level, np.maximum(counts, 1), samples - counts + 1), 0)


@pytest.mark.parametrize(("samples", "level"), [(2, 0.3), (60, 0.05 / 12), (1001, 1e-4), (8192, 0.05 / (2 * 150528))])
def test_kl_limits_hold_the_exact_binomial_ones(samples, level):
    counts = np.arange(samples + 1) if samples < 2000 else np.array([0, 1, 2, 40, 4000, 8000, 8191, 8192])
    found = kl_lower(torch.tensor(counts / samples), samples, math.log(1 / level)).numpy()
    assert (found <= exact_lower(counts, samples, level) * (1 + 1e-9) + 1e-15).all()


def test_t16_t17_errors_of_estimated_gradients():
    assert cert.err_backprop(1, 10**4, 0.001) == near(0.047169222)
    assert cert.err_bernstein(1, 1, 10**4, 0.001) == near(0.040002946)
    assert cert.err_bernstein(1, 0.1, 10**4, 0.001) == near(0.013343014)
    assert cert.err_stein(3072, 10**6, 0.001, 1, 1) == pytest.approx(0.036855, rel=2e-5)


@pytest.mark.parametrize(
    ("k", "m", "wanted"),
    [
        (3072, 10**6, 0.036855),
        (49, 10**4, 0.063296),
        (64, 10**5, 0.021957),
        (256, 10**6, 0.011931),
        (150528, 10**7, 0.078338),
    ],
)
def test_the_table_of_the_score_function_estimator(k, m, wanted):
    assert cert.err_stein(k, m, 0.001, 1, 1) == pytest.approx(wanted, rel=1e-4)
    assert cert.err_stein(k, m, 0.001, 0.5, 3) == pytest.approx(6 * wanted, rel=1e-4)


def test_the_proxy_is_the_supremum_over_all_scores():
    """2/s^2 (ln E exp(s X) - s E X) is convex in X = (f - 1/2) t, so f is 0 or 1, and 1 where |t| is large."""

    def minus(parameters):
        s, tau = parameters
        grown = 2 * math.exp(s * s / 8) * (norm.sf(tau - s / 2) + norm.cdf(tau + s / 2) - norm.cdf(s / 2))
        mean = 2 * norm.pdf(tau) - PHI0
        return -2 / s**2 * (math.log(grown) - s * mean)

    starts = itertools.product((0.5, 1, 2, 4, 8), (0.1, 0.5, 1, 2, 4))
    best = max(-minimize(minus, at, bounds=[(0.05, 30), (0, 15)]).fun for at in starts)
    assert best == pytest.approx(0.402181, abs=2e-6)
    assert best < PROXY < best + 1e-3
    rng = np.random.default_rng(0)
    t = np.linspace(-8, 8, 4001)
    mass = norm.pdf(t) / norm.pdf(t).sum()
    for _ in range(200):  # other scores, by sums
        f, s = (
            rng.choice([0, 1, rng.random()], 4001 // rng.integers(1, 400) + 1).repeat(4001)[:4001],
            rng.uniform(0.1, 6),
        )
        x = (f - 0.5) * t
        assert 2 / s**2 * (math.log(mass @ np.exp(s * (x - mass @ x)))) <= PROXY


def spins(rng, runs, m, size):
    """Gradients of length 1 in random directions; of size 1: plus or minus one."""
    found = rng.normal(size=(runs, m, size))
    return found / np.linalg.norm(found, axis=2, keepdims=True)


@pytest.mark.parametrize("size", [1, 6])
def test_coverage_of_mean_gradients(size):
    """Their mean is zero, and V = 1, the largest that gradients of length 1 have."""
    rng, runs, m = np.random.default_rng(3), 4000, 40
    grads = spins(rng, runs, m, size)
    errors = np.linalg.norm(grads.mean(1), axis=1)
    plain, aware = cert.err_backprop(1, m, ALPHA), cert.err_bernstein(1, 1, m, ALPHA)
    assert (errors > plain).sum() <= allowed(runs)
    assert (errors > aware).sum() <= allowed(runs)
    if size == 1:  # the judge has teeth: half of a bound would not pass
        assert (errors > plain / 2).sum() > allowed(runs)
        assert (errors > aware / 2).sum() > allowed(runs)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_coverage_of_variances_and_of_the_bound_that_uses_them(share):
    """A gradient is zero but for a share of the noise: few large values are the hard case."""
    rng, runs, m = np.random.default_rng(5), 1500, 200
    grads = spins(rng, runs, m, 2) * (rng.random((runs, m, 1)) < share)
    halves = ((grads[:, ::2] - grads[:, 1::2]) ** 2).sum(2) / 2
    bounds = np.array([cert.variance_bound(each, 1, ALPHA / 2) for each in halves])
    assert (bounds < share).sum() <= allowed(runs)
    errors = np.linalg.norm(grads.mean(1), axis=1)
    whole = np.array([cert.err_bernstein(1, v, m, ALPHA / 2) for v in bounds])
    assert (errors > whole).sum() <= allowed(runs)


def test_a_variance_from_data_is_that_of_the_inequality():
    halves = [0.1, 0.4, 0.2, 0.3]
    t = math.log(2 / 0.9)
    wanted = 0.25 + math.sqrt(2 * np.var(halves, ddof=1) * t / 4) + 14 * 0.25 * t / 9
    assert cert.variance_bound(halves, 0.5, 0.9) == near(min(wanted, 0.25))
    many = np.tile(halves, 5000)
    wanted = 0.25 + math.sqrt(2 * many.var(ddof=1) * t / 20000) + 14 * t / (3 * 19999)
    assert cert.variance_bound(many, 1.0, 0.9) == near(wanted)


SCORES = {  # of noise t along one direction, with the mean gradient E f(t) t
    "half-space": (lambda t: t > 0, PHI0),
    "thin": (lambda t: t > 2, float(norm.pdf(2))),
    "outside": (lambda t: abs(t) > 1.2, 0.0),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("k", [1, 8])
def test_coverage_of_the_score_function_estimator(name, k):
    score, slope = SCORES[name]
    rng, runs, m, sigma, width = np.random.default_rng(7), 2000, 50, 0.5, 3.0
    z = rng.normal(size=(runs, m, k))
    values = width * score(z[..., 0])
    found = ((values - width / 2)[..., None] * z).mean(1) / sigma
    found[:, 0] -= width / sigma * slope
    errors = np.linalg.norm(found, axis=1)
    bound = cert.err_stein(k, m, ALPHA, sigma, width)
    assert (errors > bound).sum() <= allowed(runs)
    if (name, k) == ("outside", 1):
        assert (errors > bound / 3).sum() > allowed(runs)
    pairs = ((values - width * score(-z[..., 0]))[..., None] * z).mean(1) / (2 * sigma)  # antithetic: m pairs
    pairs[:, 0] -= width / sigma * slope
    assert (np.linalg.norm(pairs, axis=1) > bound).sum() <= allowed(runs)


def test_the_mean_of_backpropagated_gradients_has_no_bound_by_the_range():
    """A ramp so steep that no sample meets it: its gradients average to 0, the truth is 0.4/sigma."""
    z = np.random.default_rng(0).normal(size=10_000)
    ramp = 1e-6
    mean = ((np.abs(z) < ramp / 2) / ramp).mean()
    truth = (ndtr(ramp / 2) - ndtr(-ramp / 2)) / ramp
    assert mean == 0
    assert truth == near(cert.gradient_cap(0, 1, 1))


# ---- the top entries of an average of bounded maps ----


def published(values, k, epsilon, sigma, samples, confidence):
    """The certified share, in the words of its authors' inequality."""
    v, n = np.sort(values)[::-1], len(values)
    c = math.sqrt(math.log(2 * n / (1 - confidence)) / (2 * samples))
    best = max(0, 2 * k - n)
    for i in range(1, k + 1):
        j = 2 * k - i + 1
        if j > n or v[i - 1] - c <= 0 or v[j - 1] + c >= 1:
            continue
        if ndtr(ndtri(v[i - 1] - c) - 2 * epsilon / sigma) - c > v[j - 1]:
            best = max(best, i)
    return best / k


shares = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5])), min_size=2, max_size=30)


@given(shares, st.data())
def test_hoeffding_is_the_published_certificate(values, data):
    k = data.draw(st.integers(1, len(values)))
    samples, epsilon = data.draw(st.integers(2, 10**5)), data.draw(st.floats(0, 2))
    means = row(*values)
    radii = cert.overlap_radii(means, *cert.hoeffding(means, samples, 0.05), k, 0.7)
    wanted = {published(values, k, epsilon * (1 + s), 0.7, samples, 0.95) for s in (-1e-9, 1e-9)}
    assert float((radii > epsilon).sum()) / k in wanted


def worst_overlap(values, k, shift):
    """Every entry's quantile moved up or down by the shift, in all 2^n ways; of ties the attacker takes the best."""
    z = ndtri(np.array(values))
    top = np.argsort(-z, kind="stable")[:k]
    least = k
    for signs in itertools.product((-1.0, 1.0), repeat=len(z)):
        moved = z + shift * np.array(signs)
        ranked = sorted(range(len(z)), key=lambda i: (-moved[i], i in top))
        least = min(least, len(set(top) & set(ranked[:k])))
    return least


@given(st.lists(st.sampled_from(np.round(np.linspace(0.02, 0.98, 25), 2).tolist()), min_size=2, max_size=7), st.data())
def test_radii_are_those_of_an_exhaustive_search(values, data):
    """Of means that are known exactly, and where each entry may move as far as any bounded map can."""
    k = data.draw(st.integers(1, len(values)))
    sigma, epsilon = 0.4, data.draw(st.sampled_from([0.0103, 0.0571, 0.2029, 0.7013]))  # no sum of gaps
    v = row(*values)
    radii = cert.overlap_radii(v, v, v, k, sigma)
    assert (radii.diff() <= 0).all() or torch.isinf(radii).any()
    assert int((radii > epsilon).sum()) == worst_overlap(values, k, epsilon / sigma)


def test_limits_need_not_be_ordered_as_the_means():
    """The widest of those before and behind decide; a lower limit of 0 and an upper one of 1 leave nothing."""
    means, lower, upper = row(0.9, 0.8, 0.3, 0.2, 0.1), row(0.6, 0.7, 0, 0, 0), row(1, 0.9, 0.4, 0.5, 0.45)
    found = cert.overlap_radii(means, lower, upper, 2, 3.0)
    assert found.tolist() == near([1.5 * (ndtri(0.6) - ndtri(0.5)), 1.5 * (ndtri(0.6) - ndtri(0.5))])
    found = cert.overlap_radii(means[:4], lower[:4], upper[:4], 3, 3.0)
    assert found.tolist() == [math.inf, math.inf, -math.inf]
    assert cert.overlap_radii(row(0, 0, 0), row(0, 0, 0), row(0, 0, 0), 1, 1.0).tolist() == [-math.inf]


def test_a_linear_score_is_certified_up_to_one_radius():
    """All copies alike, 0 or 1, and as many ones as top entries: all k stay up to the radius, none beyond."""
    n, k, samples, sigma = 3072, 307, 8192, 0.25
    found = cert.topk_certificate(torch.arange(n) < k, k, sigma, samples, 0.05)
    radius = sigma * norm.isf(1 - (0.05 / (2 * n)) ** (1 / samples))
    assert (found.overlap(0.9999 * radius), found.overlap(1.0001 * radius)) == (k, 0)
    assert found.confidence == near(0.95)


def test_two_averages_must_part_by_twice_what_each_may_be_off():
    """Phi(Phi^-1(low) - s) - c = Phi(Phi^-1(high) + s) + c, with low = 1 - high."""
    sigma, samples = 0.25, 500
    c = math.sqrt(math.log(2 * 2 / ALPHA) / (2 * samples))
    found = cert.topk_certificate([1.0, 0.0], 1, sigma, samples, ALPHA, "computed")
    assert found.radii.tolist() == near([sigma * (norm.isf(c) - norm.ppf(0.5 + c))])
    assert found.confidence == near(1 - 2 * ALPHA)
    none = cert.topk_certificate([0.6, 0.5], 1, sigma, samples, ALPHA, "computed")
    assert none.radii.tolist() == [-math.inf]


def test_half_spaces_attain_the_radius():
    """h_i = 1(w_i x > b_i): pushed along w_2 - w_1, the two entries meet exactly at the certified radius."""
    sigma, x = 0.5, np.array([0.3, -0.2])
    way, offsets = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([-0.4, 0.1])

    def means(at):
        return ndtr((way @ at - offsets) / sigma)

    v = row(*means(x))
    (radius,) = cert.overlap_radii(v, v, v, 1, sigma).tolist()
    assert radius > 0
    for s, first in ((0.999, 0), (1.001, 1)):
        assert means(x - s * radius * way[0]).argmax() == first


@given(shares, st.data())
def test_certificates_fall_with_the_change_and_grow_with_the_samples(values, data):
    k = data.draw(st.integers(1, len(values)))
    compared = data.draw(st.sampled_from(["ideal", "computed"]))
    few, more = sorted(data.draw(st.lists(st.integers(2, 10**6), min_size=2, max_size=2)))
    small, large = (cert.topk_certificate(values, k, 0.3, q, compared=compared) for q in (few, more))
    assert (large.radii >= small.radii - 1e-9).all()
    overlaps = [small.overlap(e) for e in (0.0, 0.1, 0.5, 2.0)]
    assert overlaps == sorted(overlaps, reverse=True)
    assert small.overlap(1e6) == max(0, 2 * k - len(values))
    other = cert.topk_certificate(values, k, 0.3, few)
    assert (other.radii >= small.radii - 1e-9).all()  # more is asked of two averages than of one
    turned = cert.topk_certificate(np.array(values[::-1]).reshape(1, -1), k, 0.3, few, compared=compared)
    assert torch.equal(turned.radii, small.radii)


@given(st.integers(2, 200), st.data())
def test_kl_limits_are_never_wider_than_those_of_hoeffding(samples, data):
    votes = data.draw(st.lists(st.integers(0, samples), min_size=1, max_size=12))
    means = torch.tensor(votes, dtype=torch.float64) / samples
    wide, narrow = (bound(means, samples, 0.05) for bound in BOUNDS)
    for low, high in (wide, narrow):
        assert ((low >= 0) & (low <= means) & (means <= high) & (high <= 1)).all()
    assert (wide[0] <= narrow[0] + 1e-12).all()
    assert (wide[1] >= narrow[1] - 1e-12).all()


BOUNDS = (cert.hoeffding, cert.kl)


def together(bound, means, samples):
    """The limits of many maps in one call: those of a map depend on its length over alpha alone."""
    limits = bound(torch.tensor(means).flatten(), samples, ALPHA * len(means))
    return [each.view(means.shape) for each in limits]


@pytest.mark.parametrize("bound", BOUNDS)
def test_coverage_of_all_entries_at_once(bound):
    """Votes of 8 entries, rare, even and frequent ones; and maps between 0 and 1."""
    rng, runs, samples = np.random.default_rng(11), 1500, 60
    truth = np.array([0.01, 0.05, 0.2, 0.5, 0.5, 0.8, 0.97, 1.0])
    votes = rng.random((runs, samples, 8)) < truth
    kinds = {"votes": votes.astype(float), "between": votes * rng.beta(0.5, 0.5, votes.shape)}
    for kind, values in kinds.items():
        means, goal = values.mean(1), torch.tensor(truth if kind == "votes" else truth / 2)
        low, high = together(bound, means, samples)
        failed = (~((low <= goal + 1e-12) & (goal <= high + 1e-12)).all(1)).sum()
        assert failed <= allowed(runs), kind


@pytest.mark.parametrize("compared", ["ideal", "computed"])
def test_coverage_of_the_certified_overlap(compared):
    """Eight half-spaces, all of the top pushed down and all others up: the overlap seldom falls short."""
    rng, runs, samples, sigma, k = np.random.default_rng(13), 250, 2000, 1.0, 4
    quantiles = np.array([2.0, 1.6, 1.1, 0.6, -0.1, -0.5, -1.2, -1.9])
    failed, certified = 0, 0
    for _ in range(runs):
        found = (rng.random((samples, 8)) < ndtr(quantiles)).mean(0)
        certificate = cert.topk_certificate(found, k, sigma, samples, ALPHA, compared)
        epsilon = 0.999 * float(certificate.radii[2])  # three of four stay
        assert epsilon > 0.1
        moved = quantiles + np.where(np.arange(8) < k, -1, 1) * epsilon / sigma
        there = ndtr(moved) if compared == "ideal" else (rng.random((samples, 8)) < ndtr(moved)).mean(0)
        overlap = len(set(np.argsort(-found)[:k]) & set(np.argsort(-there)[:k]))
        certified += certificate.overlap(epsilon)
        failed += overlap < certificate.overlap(epsilon)
    assert certified >= 3 * runs
    assert failed <= allowed(runs)


def test_antithetic_pairs_are_half_as_many_samples():
    """A vote that is 1 at every z with its -z: pairs vote as one, so that counting both would halve the variance."""
    rng, runs, samples = np.random.default_rng(17), 2000, 200
    pairs = rng.random((runs, samples // 2)) < 0.5  # |t| beyond its median, at z and at -z
    means = pairs.mean(1, keepdims=True)  # the same over the samples
    failed = []
    for count in (samples, samples // 2):
        votes = np.round(means * count)
        low, high = exact_lower(votes, count, ALPHA / 2), 1 - exact_lower(count - votes, count, ALPHA / 2)
        failed.append(int(((low > 0.5) | (high < 0.5)).sum()))
    assert failed[1] <= allowed(runs) < failed[0]


def network():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(32, 16), nn.Softplus(), nn.Linear(16, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2
    return net


ATTACKS = {"topk": {"k": 8}, "mass_centre": {}, "region": {"region": torch.tensor([0, 0, 2, 2])}}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_on_the_map_beats_its_certificate(attack):
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    net, k, sigma, epsilon, samples = network(), 8, 1.0, 0.05, 12_000

    def method(samples, seed):
        smoothing = mg.Smoothing(sigma=sigma, samples=samples)
        return mg.SparsifiedSmoothGrad(net, tau=0.4, gamma=0.05, smoothing=smoothing, seed=seed)

    found = method(samples, 0).attribute(x, 1)
    certificate = cert.topk_certificate(found, k, sigma, samples // 2, ALPHA, "computed")
    assert certificate.overlap(epsilon) >= 3  # or there would be nothing to beat
    victim = mg.ATTACKS[attack](method(64, 1), epsilon, **ATTACKS[attack]).perturb(x, 1)
    assert float(victim.l2) > 0.9 * epsilon
    there = method(samples, 2).attribute(victim.x, 1)
    overlap = len(set(found.flatten().topk(k).indices.tolist()) & set(there.flatten().topk(k).indices.tolist()))
    assert overlap >= certificate.overlap(epsilon)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: cert.kl_interval(0.5, 10, 0), ValueError, r"alpha must be in \(0, 1\), the chance"),
        (lambda: cert.kl_interval(1.5, 10, 0.1), ValueError, r"p_hat must be in \[0, 1\]"),
        (lambda: cert.kl_interval(0.5, 0, 0.1), ValueError, "m must be at least 1"),
        (lambda: cert.err_backprop(None, 10, 0.1), TypeError, "L must be a known number.*err_stein"),
        (lambda: cert.err_bernstein(1, -1, 10, 0.1), ValueError, "V must be a finite number >= 0"),
        (lambda: cert.err_stein(0, 10, 0.1, 1, 1), ValueError, "k must be at least 1"),
        (lambda: cert.variance_bound([1.0], 1, 0.1), ValueError, "halves must be at least 2"),
        (lambda: cert.topk_certificate([0.1, 1.2], 1, 1, 10), ValueError, r"found must lie in \[0, 1\].*sparsified"),
        (lambda: cert.topk_certificate([], 1, 1, 10), ValueError, "at least one entry"),
        (lambda: cert.topk_certificate([0.1, 0.2], 1, 1, 1), ValueError, "samples must be at least 2"),
        (
            lambda: cert.topk_certificate([0.1], 1, 1, 10, 0.6, compared="computed"),
            ValueError,
            "alpha must be below 0.5",
        ),
        (lambda: cert.topk_certificate([0.1], 1, 1, 10, compared="both"), ValueError, "compared must be one of"),
    ],
)
def test_bad_numbers(call, error, words):
    with pytest.raises(error, match=words):
        call()
