"""Curvature of averaged Lipschitz scores where their gradient is long: closed forms, linear programmes, real functions.

Second derivations: Bessel functions, the dual over all angles, polygons instead of the disc, scores whose averages are
known in closed form (sums of ridges) or by exact integrals along edges (maxima of affine functions).
"""

import itertools
import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, linprog
from scipy.special import erf, erfinv, kve, ndtr
from scipy.stats import norm

from moreaugrad.certificates import theory as cert
from moreaugrad.certificates.theory.noise import lam_steep

bend = cert.bend_lipschitz
MOST = math.sqrt(2 / math.pi)
near = pytest.approx
shares = st.floats(0, 1)
seeds = st.integers(0, 2**32 - 1)


# ---- the bound where the gradient is r long ----


def multiplier(r):
    """The m at which E m/sqrt(t^2 + m^2) = r, from its Bessel function."""
    return 2 * math.sqrt(brentq(lambda a: math.sqrt(2 * a / math.pi) * kve(0, a) - r, 1e-12, 1e6, xtol=1e-15))


@pytest.mark.parametrize("a", [1e-12, 1e-6, 1e-3, 0.04, 1.0, 30.0, 1e4, 1e12])
def test_every_digit_and_never_from_below(a):
    with mpmath.workdps(50):
        a = mpmath.mpf(a)
        k0, k1 = (mpmath.exp(a) * mpmath.besselk(n, a) for n in (0, 1))
        r, wanted = mpmath.sqrt(2 * a / mpmath.pi) * k0, mpmath.sqrt(2 / mpmath.pi) * a * (k1 - k0)
        down, up = float(r) * (1 - 2**-52), min(1.0, float(r) * (1 + 2**-52))  # the bound falls: r lies between them
        slope = 2 * mpmath.sqrt(a)  # of the bound in r: what the rounding of r may change
        assert bend(down) >= wanted
        assert bend(up) <= wanted * (1 + mpmath.mpf("2e-12"))
        assert bend(down) <= wanted * (1 + mpmath.mpf("2e-12")) + slope * (r - down)


def test_the_ends():
    assert bend(0) == cert.lam_lipschitz(1, 1) == near(MOST)
    assert bend(1) == 0
    for left in (2.0**-10, 2.0**-20, 2.0**-40):  # 1 - left is exact
        assert math.sqrt(2 * left) * (1 - left) <= bend(1 - left) <= math.sqrt(2 * left) * (1 + 2e-12)


@given(shares, shares)
def test_it_falls_and_is_concave(one, other):
    low, high = sorted((one, other))
    assert 0 <= bend(high) <= bend(low) * (1 + 2e-12) <= MOST * (1 + 3e-12)
    if high - low > 1e-9:  # or the middle is no number between them
        assert bend((low + high) / 2) >= (bend(low) + bend(high)) / 2 * (1 - 2e-12)


@given(shares, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units(r, L, sigma):
    assert bend(min(L, r * L), L, sigma) == near(bend(r) * L / sigma, rel=1e-6, abs=1e-7 * L / sigma)
    assert bend(r * L if r < 1 else L, L, sigma) <= cert.lam_lipschitz(L, sigma) * (1 + 1e-15)


def test_a_score_without_slope():
    assert bend(0, 0) == lam_steep(0, 1, 0, 1) == 0
    found = cert.local_lipschitz(0, 0, 1, 1, 0.1)
    assert (found.radius, found.lam, found.lip) == (0.1, 0, 0)


# ---- it is the least that |g| <= 1 and E g allow, whatever the angle ----


T = np.linspace(-7, 7, 141)
W = norm.pdf(T) / norm.pdf(T).sum()
SIDES = 40
INNER = math.cos(math.pi / SIDES)  # a polygon inscribed in the disc holds the disc of this radius


def programme(r, angle):
    """The same optimum over fields of T with values in a polygon inscribed in the disc."""
    n = len(T)
    corners = np.exp(2j * math.pi * (np.arange(SIDES) + 0.5) / SIDES)
    rows = np.concatenate([np.kron(corners.real[:, None], np.eye(n)), np.kron(corners.imag[:, None], np.eye(n))], 1)
    means = np.kron(np.eye(2), W)
    wanted = r * math.cos(angle), r * math.sin(angle)
    found = linprog(-np.r_[W * T, 0 * T], rows, np.full(len(rows), INNER), means, wanted, (None, None))
    assert found.status == 0
    return -found.fun


@pytest.mark.parametrize("r", [0.3, 0.6, 0.9])
def test_linear_programmes_reach_it_and_no_angle_exceeds_it(r):
    assert np.dot(W, T**2) == near(1, abs=1e-9)
    found = [programme(r, angle) for angle in (0, math.pi / 4, math.pi / 2)]
    assert max(found) <= bend(r) * (1 + 1e-6)
    assert found[-1] >= INNER * bend(r / INNER) * (1 - 1e-6)
    assert found[-1] == max(found)


@pytest.mark.parametrize("r", [0.1, 0.4, 0.8, 0.97])
def test_a_field_attains_it(r):
    m = multiplier(r)
    mean = quad(lambda t: m / math.hypot(t, m) * norm.pdf(t), 0, 12, points=[m, 1], epsabs=1e-13)[0]
    bent = quad(lambda t: t * t / math.hypot(t, m) * norm.pdf(t), 0, 12, points=[m, 1], epsabs=1e-13)[0]
    assert (2 * mean, 2 * bent) == near((r, bend(r)), rel=1e-8)


@given(seeds)
def test_no_random_field_exceeds_it(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 4)
    basis = rng.normal(size=(3, size))  # fields near the worst and far from it, in three dimensions, v the first
    field = basis @ np.stack([np.ones_like(T), np.sin(T), np.tanh(3 * T)])[:size] + np.outer(
        [rng.normal() * 2, 0, 0], T
    )
    field /= np.maximum(1, np.linalg.norm(field, axis=0)) if rng.random() < 0.3 else np.linalg.norm(field, axis=0)
    length = min(1.0, np.linalg.norm(field @ W))
    assert abs(field[0] @ (W * T)) <= bend(length * (1 - 1e-12)) + 1e-6


# ---- scores whose averages are known ----


@dataclass(frozen=True)
class Ridges:
    """b'x + sum of a_i |<v_i, x> - c_i|, unit v_i; convex or not."""

    slope: np.ndarray
    weights: np.ndarray
    ways: np.ndarray
    offsets: np.ndarray
    sigma: float

    @property
    def L(self):
        signs = itertools.product((-1, 1), repeat=len(self.weights))
        return max(np.linalg.norm(self.slope + (np.array(s) * self.weights) @ self.ways) for s in signs)

    def grad(self, x):
        at = (x @ self.ways.T - self.offsets) / self.sigma
        return self.slope + (self.weights * erf(at / math.sqrt(2))) @ self.ways

    def hess(self, x):
        at = (x @ self.ways.T - self.offsets) / self.sigma
        return np.einsum("...i,ij,ik->...jk", 2 * self.weights * norm.pdf(at) / self.sigma, self.ways, self.ways)


def ridges(rng, dim=2):
    count = rng.integers(1, 5)
    ways = rng.normal(size=(count, dim))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    return Ridges(
        rng.normal(size=dim) * rng.choice([0.0, 1.0, 4.0]),
        rng.normal(size=count) * rng.choice([0.2, 1.0]),
        ways,
        rng.normal(size=count) * rng.choice([0.0, 0.5]),
        float(rng.choice([0.2, 1.0, 3.0])),
    )


def spectrum(score, x):
    """The largest size of a curvature at each point."""
    return np.abs(np.linalg.eigvalsh(score.hess(x))).max(-1)


@settings(max_examples=300)
@given(seeds, st.sampled_from([1, 2, 3]))
def test_no_sum_of_ridges_bends_more(seed, dim):
    rng = np.random.default_rng(seed)
    score = ridges(rng, dim)
    points = rng.normal(size=(20, dim)) * score.sigma
    lengths = np.minimum(np.linalg.norm(score.grad(points), axis=1), score.L)
    allowed = np.array([bend(r, score.L, score.sigma) for r in lengths])
    assert (spectrum(score, points) <= allowed * (1 + 1e-9) + 1e-9 * score.L / score.sigma).all()


def edges_and_cells(slopes, heights):
    """Gradient and Hessian at 0, sigma = 1, of the average of max_i <a_i, x> + b_i in the plane.

    The Hessian is a sum over edges, jump times the length of the edge in the normal density; the gradient takes the
    chance of each cell by an integral over lines.
    """
    hess = np.zeros((2, 2))
    for i, j in itertools.combinations(range(len(slopes)), 2):
        jump, rise = slopes[i] - slopes[j], heights[j] - heights[i]
        size = np.linalg.norm(jump)
        foot, way = jump * rise / size**2, np.array([-jump[1], jump[0]]) / size
        low, high = -np.inf, np.inf
        for k in set(range(len(slopes))) - {i, j}:  # where the two are the largest, along the line
            a, b = (slopes[i] - slopes[k]) @ way, (slopes[i] - slopes[k]) @ foot + heights[i] - heights[k]
            low, high = (max(low, -b / a), high) if a > 0 else (low, min(high, -b / a))
        share = max(0.0, ndtr(high) - ndtr(low)) * norm.pdf(np.linalg.norm(foot))
        hess += share * np.outer(jump, jump) / size
    x = np.linspace(-9, 9, 6001)
    turn = np.array([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])  # no edge along a line
    slopes = slopes @ turn
    grad = np.zeros(2)
    for i in range(len(slopes)):
        low, high = np.full_like(x, -np.inf), np.full_like(x, np.inf)
        for k in set(range(len(slopes))) - {i}:
            a, b = slopes[i] - slopes[k], heights[i] - heights[k]
            at = -(a[0] * x + b) / a[1]
            low, high = (np.maximum(low, at), high) if a[1] > 0 else (low, np.minimum(high, at))
        chance = np.maximum(0, ndtr(high) - ndtr(low))
        grad += slopes[i] * np.trapezoid(chance * norm.pdf(x), x)
    return turn @ grad, hess


def test_edges_and_cells_of_a_tent():
    grad, hess = edges_and_cells(np.array([[0.6, 0.8], [-0.6, 0.8]]), np.zeros(2))
    assert grad == near([0, 0.8], abs=1e-9)
    assert hess == near(np.diag([0.6 * MOST, 0]))


@settings(max_examples=40)
@given(seeds)
def test_no_maximum_of_affine_functions_bends_more(seed):
    rng = np.random.default_rng(seed)
    count = rng.integers(2, 7)
    angles = rng.uniform(-1, 1, size=count) * rng.choice([0.5, 1.5, math.pi])
    slopes = np.stack([np.sin(angles), np.cos(angles)], 1) * rng.uniform(rng.choice([0.5, 1.0]), 1, size=(count, 1))
    L = np.linalg.norm(slopes, axis=1).max()
    grad, hess = edges_and_cells(slopes, rng.normal(size=count) * rng.choice([0.0, 0.5]))
    assert np.abs(np.linalg.eigvalsh(hess)).max() <= bend(min(L, np.linalg.norm(grad)), L) + 1e-6


def cone(far):
    """Gradient and curvature, at 0, of the average of the distance from (0, -far) in the plane."""
    t, w = np.polynomial.hermite_e.hermegauss(120)
    w = np.outer(w, w) / (2 * math.pi)
    t, y = np.meshgrid(t, t, indexing="ij")
    size = np.hypot(t, y + far)
    return float((w * (y + far) / size).sum()), float((w * t * t / size).sum())


def test_scores_that_attain_it():
    """A tent at its ridge; and cones seen from afar, ever more closely."""
    tent = Ridges(np.zeros(2), np.ones(1), np.array([[1.0, 0.0]]), np.zeros(1), 0.5)
    here = np.zeros(2)
    assert spectrum(tent, here) == near(bend(np.linalg.norm(tent.grad(here)), tent.L, 0.5))
    gaps = [1 - bent / bend(r) for r, bent in map(cone, (5, 10, 30, 100))]
    assert min(gaps) > 0
    assert (np.diff(gaps) < 0).all()
    assert gaps[1] < 0.01
    assert gaps[-1] < 1e-4


@pytest.mark.parametrize(("r", "share"), [(0.1, 0.99), (0.3, 0.97), (0.5, 0.93), (0.6, 0.91)])
def test_tilted_tents_come_close(r, share):
    grad, hess = edges_and_cells(np.array([[1, 0], [-1, 0]]) * math.sqrt(1 - r * r) + [0, r], np.zeros(2))
    assert grad == near([0, r], abs=1e-9)
    assert share * bend(r) <= hess[0, 0] <= bend(r)


# ---- how fast a gradient shortens, and the ball ----


def steepness(score, x):
    return math.sqrt(2) * erfinv(np.minimum(1, np.linalg.norm(score.grad(x), axis=-1) / score.L))


@given(seeds)
def test_quantiles_of_lengths_move_no_faster_than_the_input(seed):
    rng = np.random.default_rng(seed)
    score = ridges(rng)
    one, other = rng.normal(size=(2, 50, 2)) * score.sigma
    shares = [np.linalg.norm(score.grad(x), axis=1) / score.L for x in (one, other)]
    tame = np.maximum(*shares) < 1 - 1e-9  # beyond, the digits of the quantile are gone
    moved = np.abs(steepness(score, one) - steepness(score, other)) * score.sigma
    assert (moved <= np.linalg.norm(one - other, axis=1) + 1e-6)[tame].all()


@pytest.mark.parametrize("far", [0.1, 0.7, 2.0])
def test_the_ball_is_attained_by_a_tent(far):
    """From a point at that distance of its ridge the gradient falls to 0 there, and the curvature is the largest."""
    sigma, L = 0.5, 2.0
    r = L * math.erf(far / sigma / math.sqrt(2))
    assert lam_steep(r, far, L, sigma) == near(L * MOST / sigma, rel=1e-9)
    found = cert.local_lipschitz(r, L, sigma, 0.25 * far / L, 0.25 * far)
    assert found.radius == near(far / 2)
    assert found.low == near(L * math.erf(far / 2 / sigma / math.sqrt(2)), rel=1e-9)


@given(shares, st.floats(0, 5), st.floats(0.1, 10), st.floats(0.1, 10))
@example(1.0, 5.0, 1.0, 1e-308)
@example(0.5, 1.0, 1.0, 1e-308)
def test_the_ball_of_radius_0_is_the_point_and_larger_ones_bend_more(r, radius, L, sigma):
    r *= L
    whole = L * MOST / sigma
    here, point = bend(r, L, sigma), lam_steep(r, 0, L, sigma)
    assert here * (1 - 1e-13) <= point <= here + 2e-7 * whole  # L less its rounding
    found = [lam_steep(r, share * radius, L, sigma) for share in (0, 0.3, 1)]
    assert found == near(sorted(found), rel=1e-11)
    assert found[-1] <= whole * (1 + 1e-15)


# ---- the local certificate ----


def test_a_worked_certificate():
    """One step of the definition at a time."""
    found = cert.local_lipschitz(0.9, 1, 0.5, 0.25, 0.05)
    assert found.radius == near(0.3)
    left = norm.ppf(0.95) - 0.6
    assert found.low == near(2 * ndtr(left) - 1, rel=1e-10)
    assert found.lam == found.beta == near(bend(2 * ndtr(left) - 1) / 0.5, rel=1e-9)
    assert found.lip == near(found.lam / (1 - 0.25 * found.lam))
    assert math.isfinite(found.lip)
    assert cert.local_lipschitz(0.9, 1, 0.5, 0.25, 0.05, penalised=False).lip == near(found.lip)


def test_a_linear_score_is_hardly_bent_nearby():
    """A length that is L as far as its digits go may be that of a ridge eight sigma away, and no further off."""
    found = [cert.local_lipschitz(2, 2, 0.5, rho, 0.0) for rho in (0.01, 0.25, 1.0, 2.5)]
    assert [each.radius for each in found] == near([0.02, 0.5, 2.0, 5.0])
    assert [each.lam < 4 * each_ for each, each_ in zip(found, (1e-6, 1e-4, 0.1, 1), strict=True)] == [True] * 4
    assert found[-1].lam == cert.lam_lipschitz(2, 0.5)


@pytest.mark.parametrize("far", [8.5, 9.0, 12.0])
def test_lengths_that_round_to_the_constant(far):
    """Of the tent from far off its ridge: the gradient is L to the last digit, yet the score is not linear."""
    tent = Ridges(np.zeros(1), np.ones(1), np.ones((1, 1)), np.zeros(1), 1.0)
    assert tent.grad(np.array([far])) == 1
    points = np.linspace(0, far, 200)[:, None]
    allowed = [lam_steep(1, far - float(at[0]), 1, 1) for at in points]
    assert (spectrum(tent, points) <= allowed).all()


def test_it_can_certify_a_rho_above_that_of_the_constant():
    rho = 1.3 / cert.lam_lipschitz(1, 1)
    assert math.isfinite(cert.local_lipschitz(0.999, 1, 1, rho, 0.05).lip)
    assert math.isinf(cert.local_lipschitz(0.5, 1, 1, rho, 0.05).lip)


def test_an_upper_bound_on_the_gradient_shrinks_the_ball():
    wide, narrow = (cert.local_lipschitz(0.4, 1, 1, 0.3, 0.01, True, high) for high in (None, 0.45))
    assert wide.radius == near(0.31)
    assert narrow.radius == near(0.01 + 0.3 * narrow.high)
    assert narrow.high == near(math.erf((norm.ppf(0.725) + narrow.radius) / math.sqrt(2)), rel=1e-9)
    assert narrow.radius < wide.radius
    assert narrow.lam < wide.lam


@given(shares, shares, st.floats(0.05, 2), st.floats(0.05, 3), st.floats(0, 1), st.floats(0.1, 20))
@example(0.0, 1e-17, 1.0, 0.5, 0.0, 1.0)  # 1 - r/L rounds to 1, which would lose the gradient, and the ball with it
def test_never_worse_than_the_constant_and_laws(one, other, sigma, theta, epsilon, L):
    low, high = sorted((one * L, other * L))
    whole = cert.lam_lipschitz(L, sigma)
    rho = theta / whole
    found = cert.local_lipschitz(low, L, sigma, rho, epsilon, True, high)
    assert 0 <= found.low <= low * (1 + 1e-9)
    assert high * (1 - 1e-9) <= found.high <= L
    assert 0 <= found.lam <= whole * (1 + 1e-15)
    assert epsilon <= found.radius <= (epsilon + rho * L) * (1 + 1e-12)
    if theta < 0.999:
        assert found.lip <= cert.lip_prox(rho, whole, whole) * (1 + 1e-9)
    assert math.isfinite(found.lip) == (rho * found.lam < 1)
    steeper, closer = cert.local_lipschitz(high, L, sigma, rho, epsilon), cert.local_lipschitz(low, L, sigma, rho, 0.0)
    assert max(found.lam, closer.lam) <= cert.local_lipschitz(low, L, sigma, rho, epsilon).lam * (1 + 1e-11)
    assert steeper.lam <= cert.local_lipschitz(low, L, sigma, rho, epsilon).lam * (1 + 1e-11)
    low, high, L, sigma = 4 * low, 4 * high, 4 * L, 2 * sigma  # inputs in units of 1/2, scores of 1/8
    scaled = cert.local_lipschitz(low, L, sigma, rho / 2, 2 * epsilon, True, high)
    assert (scaled.radius, scaled.low, scaled.lam) == near((2 * found.radius, 4 * found.low, 2 * found.lam), rel=1e-9)
    assert scaled.lip == near(2 * found.lip, rel=1e-7)


def in_ball(rng, centre, radius, count):
    ways = rng.normal(size=(count, len(centre)))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    return centre + radius * ways * rng.uniform(0, 1, size=(count, 1)) ** rng.choice([0.1, 0.5])


def steep_ridges(rng, dim=2):
    """Most of the slope is common to all pieces, as it must be for a certificate to say anything."""
    score = ridges(rng, dim)
    way = rng.normal(size=dim)
    score.slope[:] = way / np.linalg.norm(way) * np.abs(score.weights).sum() * rng.choice([0.0, 1.0, 3.0])
    return score


@settings(max_examples=150)
@given(seeds, st.sampled_from([0.02, 0.3]), st.sampled_from([0.3, 0.9, 1.5]))
def test_the_average_keeps_to_its_bounds_on_the_ball(seed, distance, theta):
    rng = np.random.default_rng(seed)
    score = steep_ridges(rng)
    centre = rng.normal(size=2) * score.sigma
    r = min(score.L, float(np.linalg.norm(score.grad(centre))))
    rho = theta / cert.lam_lipschitz(score.L, score.sigma)
    found = cert.local_lipschitz(r, score.L, score.sigma, rho, distance * score.sigma, True, r)
    points = in_ball(rng, centre, found.radius, 200)
    lengths = np.linalg.norm(score.grad(points), axis=1)
    assert lengths.min() >= found.low - 1e-9 * score.L
    assert lengths.max() <= found.high + 1e-9 * score.L
    assert spectrum(score, points).max() <= found.lam * (1 + 1e-9) + 1e-9 * score.L / score.sigma


def solutions(score, x, rho, eta, start):
    """delta of all inputs at once, by proximal gradient steps of a safe length."""
    step = 1 / (1 / rho + MOST * score.L / score.sigma)
    delta = start.copy()
    for _ in range(3000):
        moved = delta - step * (score.grad(x + delta) + delta / rho)
        new = np.sign(moved) * np.maximum(np.abs(moved) - step * eta, 0)
        if np.abs(new - delta).max() <= 1e-13 * (1 + np.abs(new).max()):
            return new
        delta = new
    return delta


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([1, 2]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.4, 0.9, 1.3]))
def test_certified_maps_are_unique_near_and_move_no_further(seed, dim, eta, theta):
    rng = np.random.default_rng(seed)
    score = steep_ridges(rng, dim)
    centre, epsilon = rng.normal(size=dim) * score.sigma, 0.1 * score.sigma
    r = min(score.L, float(np.linalg.norm(score.grad(centre))))
    rho = theta / cert.lam_lipschitz(score.L, score.sigma)
    found = cert.local_lipschitz(r, score.L, score.sigma, rho, epsilon, bool(eta), r)
    if math.isinf(found.lip) or rho * found.lam > 0.97:  # too slow to solve
        return
    x = in_ball(rng, centre, epsilon, 12)
    starts = (np.zeros_like(x), rng.normal(size=x.shape) * 5 * found.radius)
    first, second = (solutions(score, x, rho, eta * r, start) for start in starts)
    assert first == near(second, abs=1e-7 * found.radius)
    assert np.linalg.norm(x + first - centre, axis=1).max() <= found.radius * (1 + 1e-9)
    moved = np.linalg.norm(first[:, None] - first, axis=2) / rho
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    assert (moved <= found.lip * distances + 1e-9 * score.L).all()


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.3]), st.sampled_from([0.3, 0.8]))
def test_gradients_measured_at_a_solution_certify_too(seed, eta, theta):
    """Solutions of inputs within epsilon lie within (1 + rho lip) epsilon of it, with any lip that is valid already."""
    rng = np.random.default_rng(seed)
    score = steep_ridges(rng)
    centre, epsilon = rng.normal(size=2) * score.sigma, 0.1 * score.sigma
    lam = cert.lam_lipschitz(score.L, score.sigma)
    rho = theta / lam
    x = np.concatenate([centre[None], in_ball(rng, centre, epsilon, 12)])
    found = solutions(score, x, rho, eta * score.L, np.zeros_like(x))
    r = min(score.L, float(np.linalg.norm(score.grad(x + found)[0])))
    lip = cert.lip_prox(rho, lam, lam)
    for _ in range(5):
        lam = lam_steep(r, (1 + rho * lip) * epsilon, score.L, score.sigma)
        lip = min(lip, cert.lip_prox(rho, lam, lam))
    moved = np.linalg.norm(found[:, None] - found, axis=2) / rho
    assert (moved <= lip * np.linalg.norm(x[:, None] - x, axis=2) + 1e-9 * score.L).all()


def test_the_constant_of_the_map_is_reached_up_to_a_third():
    """A cone seen from afar: its own curvature makes most of the certified constant of the map."""
    far, rho, epsilon = 8.0, 0.2, 1e-3
    r, bent = cone(far)
    found = cert.local_lipschitz(r, 1, 1, rho, epsilon)
    x = epsilon * np.array([1.0, 0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    w = np.outer(weights, weights).ravel() / (2 * math.pi)

    def grad(y):
        rays = z + y + [0, far]
        return w @ (rays / np.linalg.norm(rays, axis=1, keepdims=True))

    maps = []
    for at in (-x, x):
        delta = np.zeros(2)
        for _ in range(100):
            delta = -rho * grad(at + delta)
        maps.append(-delta / rho)
    ratio = np.linalg.norm(maps[1] - maps[0]) / (2 * epsilon)
    assert ratio == near(bent, rel=0.05)
    assert 2 / 3 * found.lip <= ratio <= found.lip < cert.lip_prox(rho, MOST, MOST) / 4


# ---- what is refused, and the way out ----


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: bend(-0.1), ValueError, r"within \[0, L\].*got -0.1 with L=1.0; .*give 0"),
        (lambda: bend(1.1), ValueError, r"within \[0, L\].*by rounding give L"),
        (lambda: bend(math.nan), ValueError, "the length of the gradient must"),
        (lambda: bend(None), TypeError, "bound on the length of the gradient must be a number"),
        (lambda: bend(0.5, None), TypeError, "L must be a known number, got None; .*score='prob'"),
        (lambda: lam_steep(0.5, -1, 1, 1), ValueError, "radius must be a finite number >= 0"),
        (lambda: cert.local_lipschitz(2, 1, 1, 1, 1), ValueError, r"within \[0, L\].*2 to 1 with L=1"),
        (lambda: cert.local_lipschitz(0.5, 1, 1, 1, 1, True, 0.4), ValueError, "lower bound first, got 0.5 to 0.4"),
        (lambda: cert.local_lipschitz(0.5, 1, 1, 1, 1, True, 1.4), ValueError, r"within \[0, L\]"),
    ],
)
def test_bad_numbers(call, error, words):
    with pytest.raises(error, match=words):
        call()
