"""Certificates of solved maps: worked numbers, counterexamples, laws, and cases in which a bound is attained.

Second derivations: exact solutions by enumeration of sign patterns, linear programmes, exhaustive searches.
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import minimise, soft_groups
from scipy.optimize import linprog, minimize, minimize_scalar
from scipy.special import erfinv, ndtr, ndtri

import moreaugrad as mg
from moreaugrad.certificates import theory as cert
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors import L1, Zero

near = partial(pytest.approx, rel=1e-6, abs=0)  # the default of abs would let every small number pass
PHI0, PHI1 = 1 / math.sqrt(2 * math.pi), math.exp(-0.5) / math.sqrt(2 * math.pi)


# ---- maps of quadratic scores, exactly ----


def exact(hessian, slope, x, rho, eta):
    """delta* of y'Hy/2 + b'y with the L1 prior: every sign pattern is tried, the one that fits best is taken."""
    h, size = np.asarray(hessian, float), len(x)
    start = h @ np.asarray(x, float) + np.asarray(slope, float)
    best, found = math.inf, None
    for signs in map(np.array, itertools.product((-1.0, 0.0, 1.0), repeat=size)):
        on = signs != 0
        delta = np.zeros(size)
        if on.any():
            system = np.eye(on.sum()) + rho * h[np.ix_(on, on)]
            delta[on] = np.linalg.solve(system, -rho * (start[on] + eta * signs[on]))
        off = np.abs((start + h @ delta)[~on]) - eta
        miss = max([0.0, *(-signs * delta)[on], *off])
        if miss < best:
            best, found = miss, delta
    assert best < 1e-9
    return found


def exact_map(hessian, slope, x, rho, eta=0.0):
    return -exact(hessian, slope, x, rho, eta) / rho


def solved_map(hessian, slope, x, rho, eta=None, groups=None):
    """The same by the package, from autograd and its solver."""
    h, b = (torch.tensor(each, dtype=torch.float64) for each in (hessian, slope))

    def score(v):
        return ((v @ h) * v).sum(1) / 2 + v @ b

    options = {"rho": rho, "smoothing": None, "solver": mg.ProximalGradient(tol=1e-12), "budget": 5000}
    if groups is not None:
        method = mg.GroupSparseMoreauGrad(score, eta=eta, groups=torch.tensor(groups), **options)
    elif eta is not None:
        method = mg.SparseMoreauGrad(score, eta=eta, **options)
    else:
        method = mg.MoreauGrad(score, **options)
    return method.attribute(torch.tensor([x], dtype=torch.float64))[0].tolist()


BENT, SLOPE = [[2.0, 0.0], [0.0, -0.5]], [0.5, 2.0]


def test_t1_the_plain_map():
    assert solved_map(BENT, SLOPE, [1.0, 2.0], 0.5) == near([1.25, 4 / 3])
    assert exact(BENT, SLOPE, [1.0, 2.0], 0.5, 0.0) == near([-0.625, -2 / 3])


def test_t2_the_sparse_map():
    assert solved_map(BENT, SLOPE, [1.0, 2.0], 0.5, 0.4) == near([1.05, 0.8])
    assert exact_map(BENT, SLOPE, [1.0, 2.0], 0.5, 0.4) == near([1.05, 0.8])


def test_t3_the_group_map():
    found = solved_map([[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0], [0.0, 0.0], 0.5, 1.0, groups=[0, 0])
    assert found == near([1.6, 32 / 15])


def test_t4_soft_thresholds():
    one = torch.ones(1, dtype=torch.float64)
    found = L1().prox(torch.tensor([[1.5, -0.2, -3.0]], dtype=torch.float64), 0.5 * one)
    assert found[0].tolist() == near([1, 0, -2.5])
    v = torch.tensor([[3.0, 4.0, 0.3, -0.4]], dtype=torch.float64)
    assert mg.Group(torch.tensor([0, 0, 1, 1])).for_batch(v).prox(v, one)[0].tolist() == near([2.4, 3.2, 0, 0])


# ---- the paper's constants, and three scores that break them ----

SHARP = [[1.0, 10.0], [10.0, 100.0]]  # (x1 + 10 x2)^2/2
STEEP = [[1.0, 0.0, 10.0, 0.0], [0.0, 0.25, 0.0, 0.0], [10.0, 0.0, 100.0, 0.0], [0.0, 0.0, 0.0, 0.25]]


def published(rho, lam):
    return max(1 / rho, lam / (1 - rho * lam))


def test_ce1_t5_a_sparse_map_moves_five_times_as_far_as_published():
    here, there = ([-1.0, 0.0], [-0.9, 0.0])
    for solve in (exact_map, solved_map):
        assert solve(SHARP, [-3.0, -10.0], [0.0, 0.0], 1.0, 1.0) == near(here, abs=1e-9)
        assert solve(SHARP, [-3.0, -10.0], [0.0, 0.02], 1.0, 1.0) == near(there, abs=1e-9)
    ratio = math.dist(here, there) / 0.02
    assert ratio == near(5 * published(rho=1, lam=0))
    assert ratio <= cert.lip_prox(1, 0, 101)
    assert math.dist(here, there) <= cert.holder_prox(1, 0, 0.02, prior_of_change=0.02)
    operator = np.array([[2.0, 10.0], [0.0, 1.0]])
    assert np.linalg.eigvalsh((operator + operator.T) / 2)[0] == near(-3.524938)


@pytest.mark.parametrize("k", [4.0, 10.0, 100.0])
def test_ce1_no_constant_of_rho_and_lam_alone_can_hold(k):
    hessian, slope, t = [[1.0, k], [k, k * k]], [-3.0, -k], 0.01 / k
    moved = exact_map(hessian, slope, [0, t], 1, 1) - exact_map(hessian, slope, [0, 0], 1, 1)
    assert np.linalg.norm(moved) / t == near(k / 2)


def test_ce2_a_group_map_moves_five_times_as_far_as_published():
    slope, groups = [-3.0, 0.0, -10.0, 0.0], [0, 0, 1, 1]
    maps = [solved_map(STEEP, slope, [0.0, 0.0, t, 0.0], 1.0, 1.0, groups) for t in (0.0, 0.02)]
    assert math.dist(*maps) / 0.02 == near(5 * published(rho=1, lam=0))
    assert np.linalg.eigvalsh(STEEP)[0] > -1e-12  # convex


def test_ce3_a_penalised_envelope_is_no_smoother_than_its_score():
    """Near 0 the minimiser is 0, so the envelope is g = 50 x^2 itself, whose gradient moves 100 per unit."""
    assert solved_map([[100.0]], [0.0], [0.5], 1.0, 1000.0) == [0.0]
    assert exact([[100.0]], [0.0], [0.5], 1.0, 1000.0) == [0.0]
    assert cert.lip_dual(1, 0, 100) == 100 > published(rho=1, lam=0)


# ---- Lipschitz constants ----


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ((1, 0, 100), (0.990099010, 5.0, 100)),
        ((1, 0, 0.5), (1 / 3, 1 / 3, 0.5)),
        ((1, 0.5, 0.5), (1, 1, 1)),
        ((1, 0.2, 5), (0.833333333, 1.231174023, 5)),
        ((0.5, 0.4, 10), (1.666666667, 2.462348045, 10)),
        ((0.1, 2, 3), (2.5, 2.5, 3)),
    ],
)
def test_t6_constants(given_, wanted):
    assert (cert.lip_vanilla(*given_), cert.lip_prox(*given_), cert.lip_dual(*given_)) == near(wanted)


def test_an_unknown_upper_curvature():
    assert cert.lip_vanilla(0.5, 0.1, math.inf) == near(2.0)
    assert cert.lip_vanilla(0.5, 1.9, math.inf) == near(1.9 / 0.05)
    assert math.isinf(cert.lip_prox(0.5, 0.1, math.inf))
    assert math.isinf(cert.lip_dual(0.5, 0.1, math.inf))
    assert cert.map_error(0.1, 0.2, 0.5, 1.0, math.inf, penalised=False) == near(0.6)


thetas, betas = (st.one_of(st.just(0.0), st.floats(1e-9, most)) for most in (0.97, 1e3))
rhos = st.floats(0.01, 20)


@given(thetas, rhos, betas)
def test_order_and_limits_of_the_constants(theta, rho, beta):
    lam = theta / rho
    plain, prox, dual = (f(rho, lam, beta) for f in (cert.lip_vanilla, cert.lip_prox, cert.lip_dual))
    assert plain <= prox * (1 + 1e-12)
    assert prox <= dual * (1 + 1e-12)
    assert dual == pytest.approx(max(beta, lam / (1 - theta)), rel=1e-12)
    if rho * beta <= theta * (1 + theta) / (1 - theta):
        assert prox == pytest.approx(lam / (1 - theta), rel=1e-9)
    if theta == 0:
        assert prox == pytest.approx(beta / (1 + rho * beta) if rho * beta <= 1 else math.sqrt(beta / rho) / 2)
    if beta >= lam:
        assert dual <= beta / (1 - theta) * (1 + 1e-12)


@given(thetas, rhos, betas)
def test_lip_prox_is_the_maximum_that_it_is_the_closed_form_of(theta, rho, beta):
    low, high = theta, rho * beta
    h = np.linspace(-low, high, 20001)
    scanned = (np.sqrt(np.maximum((high - low) * h + low * high, 0)) / (1 + h)).max() / rho
    assert cert.lip_prox(rho, theta / rho, beta) >= scanned * (1 - 1e-12)
    if high < 100:
        assert cert.lip_prox(rho, theta / rho, beta) == pytest.approx(scanned, rel=1e-4, abs=1e-12)


def test_lip_prox_of_very_small_and_very_large_curvatures():
    assert cert.lip_prox(1, 0, 1e-300) == near(1e-300)
    assert cert.lip_prox(1, 0, 1e300) == near(5e149)
    assert cert.lip_prox(1, 1e-200, 1e-190) == near(1e-190)


@pytest.mark.parametrize("given_", [(1, 0.2, 5), (0.5, 0.4, 10), (1, 0, 100), (2, 0.3, 1.5), (0.1, 2, 40)])
def test_lip_prox_is_attained(given_):
    """Two entries, one of them kept: eigenvalues -lam and beta, and the curvature along the kept one the worst."""
    rho, lam, beta = given_
    low, high = rho * lam, rho * beta
    kept = min(max(1 - 2 * low * high / (high - low), -low), high) / rho
    share = (kept + lam) / (beta + lam)  # of the kept entry on the eigenvector of beta
    first = np.array([math.sqrt(share), math.sqrt(1 - share)])
    second = np.array([-first[1], first[0]])
    hessian = beta * np.outer(first, first) - lam * np.outer(second, second)
    kept = 2 * rho / (1 + rho * hessian[0, 0])  # of the entry that is kept; the other one's gradient is then zero
    slope = [-3.0, -hessian[0, 1] * kept]
    way = hessian[0] / np.linalg.norm(hessian[0])  # the change that moves the kept entry most
    here, there = (exact_map(hessian, slope, s * way, rho, 1.0) for s in (-1e-4, 1e-4))
    assert here[1] == there[1] == 0
    assert np.linalg.norm(here - there) / 2e-4 == pytest.approx(cert.lip_prox(*given_), rel=1e-8)


def test_lip_vanilla_is_attained():
    for rho, lam, beta in [(1, 0.2, 5), (0.5, 1.5, 0.2)]:
        hessian = [[-lam, 0.0], [0.0, beta]]
        moved = [exact_map(hessian, [0, 0], x, rho) for x in ([1.0, 0.0], [0.0, 1.0])]
        assert max(np.linalg.norm(each) for each in moved) == near(cert.lip_vanilla(rho, lam, beta))


@st.composite
def problems(draw, size=3):
    """A random quadratic score with its extreme curvatures, and two inputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rho, theta = draw(st.sampled_from([0.2, 1.0, 3.0])), draw(st.sampled_from([0.0, 0.3, 0.8]))
    lam, beta = theta / rho, draw(st.sampled_from([0.1, 1.0, 30.0])) / rho
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    values = np.array([-lam, beta, *rng.uniform(-lam, beta, size - 2)])
    slope, x = rng.normal(size=size) * 2, rng.normal(size=size)
    change = rng.normal(size=size) * 10 ** rng.uniform(-3, 1)
    return rho, lam, beta, turn @ np.diag(values) @ turn.T, slope, x, x + change, rng


@given(problems(), st.sampled_from([0.0, 0.3, 2.0]))
def test_no_exact_map_moves_further_than_its_constants(problem, eta):
    rho, lam, beta, hessian, slope, x, other, _ = problem
    here, there = (exact(hessian, slope, at, rho, eta) for at in (x, other))
    far = np.linalg.norm(other - x)
    moved = np.linalg.norm(here - there) / rho
    assert moved <= cert.lip_prox(rho, lam, beta) * far + 1e-9
    if eta == 0:
        assert moved <= cert.lip_vanilla(rho, lam, beta) * far + 1e-9
    assert moved <= cert.holder_prox(rho, lam, far, eta * np.abs(other - x).sum()) + 1e-9
    assert moved <= cert.holder_prox(rho, lam, far, eta * math.sqrt(3) * far) + 1e-9
    dual = np.linalg.norm(hessian @ (x + here - other - there))
    assert dual <= cert.lip_dual(rho, lam, beta) * far + 1e-8
    assert np.linalg.norm(x + here - other - there) <= (1 + rho * cert.lip_prox(rho, lam, beta)) * far + 1e-9


@settings(max_examples=15)
@given(problems(size=4), st.sampled_from([0.3, 2.0]))
def test_no_group_map_moves_further_than_its_constant(problem, eta):
    rho, lam, beta, hessian, slope, x, other, _ = problem
    assume(rho * beta < 5)  # plain proximal steps would take too long
    h, b = torch.tensor(hessian), torch.tensor(slope)
    both, labels = torch.tensor(np.stack([x, other])), torch.tensor([0, 0, 1, 1])

    def threshold(v, gamma):
        return soft_groups(v, labels, gamma * eta)

    gamma = rho / (1 + rho * beta)
    delta = minimise(lambda v: ((v @ h) * v).sum(1) / 2 + v @ b, both, rho, threshold, gamma, 300)
    moved = float((delta[0] - delta[1]).norm()) / rho
    assert moved <= cert.lip_prox(rho, lam, beta) * np.linalg.norm(other - x) + 1e-6


# ---- a bound for weak convexity alone ----


def test_t7_holder():
    assert cert.holder_prox(1, 0, 0.02, 0.02) == near(0.210249844)
    assert cert.holder_prox(0.5, 0.8, 0.1, 0.005 * math.sqrt(3072) * 0.1) == near(0.494342947)


@given(st.floats(0, 0.95), st.floats(0.1, 5), st.floats(0, 3))
def test_holder_without_prior_is_the_published_constant(theta, rho, epsilon):
    wanted = published(rho, theta / rho) * epsilon
    assert cert.holder_prox(rho, theta / rho, epsilon, 0.0) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_holder_is_reached_up_to_a_root_of_two():
    """(x1 + k x2)^2/2 for large k: the dropped gradient swings from -1 to 1 while the kept entry moves."""
    k = 3e3
    t = 2 / (k * k / 2)  # of the dropped gradient, k^2/2 per unit
    maps = [exact_map([[1, k], [k, k * k]], [-3, -k], [0.0, s], 1, 1) for s in (-t / 2, t / 2)]
    moved = np.linalg.norm(maps[1] - maps[0])
    bound = cert.holder_prox(1, 0, t, prior_of_change=t)
    assert moved / bound == pytest.approx(1 / math.sqrt(2), rel=1e-3)


# ---- from residuals to maps ----


@given(problems(), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.01, 1.0]))
def test_no_map_is_further_than_its_error_says(problem, eta, wrong):
    """The residual of any delta, with a gradient that is `wrong` off."""
    rho, lam, beta, hessian, slope, x, _, rng = problem
    best = exact(hessian, slope, x, rho, eta)
    delta, off = best + rng.normal(size=3), rng.normal(size=3)
    grad = hessian @ (x + delta) + slope + wrong * off / np.linalg.norm(off)
    target = np.sign(-rho * grad) * np.maximum(np.abs(rho * grad) - rho * eta, 0)
    res = np.linalg.norm(delta - target) / rho
    error = np.linalg.norm(delta - best) / rho
    assert error <= cert.map_error(res, wrong, rho, lam, beta) * (1 + 1e-9) + 1e-9
    if eta == 0:
        assert error <= cert.map_error(res, wrong, rho, lam, math.inf, penalised=False) * (1 + 1e-9) + 1e-9
    dual = np.linalg.norm(grad - hessian @ (x + best) - slope)
    assert dual <= cert.dual_error(wrong, error, rho, lam, beta) * (1 + 1e-9) + 1e-9


def test_the_error_of_a_map_is_attained():
    """One entry of curvature -lam, any delta: the residual is (1 - rho lam) times the error."""
    rho, lam = 0.5, 1.2
    best = exact([[-lam]], [2.0], [0.3], rho, 0.0)[0]
    delta = best + 0.7
    res = abs(delta + rho * (-lam * (0.3 + delta) + 2)) / rho
    for penalised in (True, False):
        assert cert.map_error(res, 0, rho, lam, lam, penalised) == near(0.7 / rho)
        assert cert.map_error(0, 2 * res, rho, lam, lam, penalised) == near(1.4 / rho)
    assert cert.map_error(0, 0, rho, lam, math.inf) == 0


# ---- curvature of smoothed scores ----


def test_t8_curvatures():
    assert cert.lam_lipschitz(1, 0.25) == near(3.191538243)
    assert cert.lam_range(0, 1, 0.25) == near(7.743063185)
    assert 1 / cert.lam_range(0, 1, 0.25) == near(0.129147855)
    assert cert.lam_range(-10, 10, 0.5) == near(38.715315923)


@pytest.mark.parametrize(
    "row",
    [
        (0.05, 193.576580, 0.005166, 387.153159, 7.978846, 15.957691),
        (0.12, 33.607045, 0.029756, 67.214090, 3.324519, 6.649038),
        (1.00, 0.483941, 2.066366, 0.967883, 0.398942, 0.797885),
        (2.00, 0.120985, 8.265463, 0.241971, 0.199471, 0.398942),
    ],
)
def test_the_table_of_sigmas(row):
    sigma, lam, most, lip, cap, of_lipschitz = row
    found = cert.lam_range(0, 1, sigma)
    rho = 0.5 / found
    assert (found, 2 * rho, cert.gradient_cap(0, 1, sigma)) == pytest.approx((lam, most, cap), rel=1e-4)
    assert cert.lip_prox(rho, found, found) == pytest.approx(lip, rel=1e-5)
    assert cert.lam_lipschitz(1, sigma) == pytest.approx(of_lipschitz, rel=1e-5)
    assert rho * cert.gradient_cap(0, 1, sigma) < math.sqrt(math.e) / 4 * sigma * (1 + 1e-9)


def test_the_constant_of_a_range_and_its_rho_are_sharp():
    """f = 1(|x| < 1), sigma 1: h'' = -2 phi(1) at 0; up to rho_max one minimiser, at 1.05 rho_max two."""

    def slope(d, rho):
        return np.exp(-((d + 1) ** 2) / 2) * PHI0 - np.exp(-((1 - d) ** 2) / 2) * PHI0 + d / rho

    step = 1e-5
    assert (slope(step, math.inf) - slope(-step, math.inf)) / (2 * step) == near(-cert.lam_range(0, 1, 1))
    most = 1 / cert.lam_range(0, 1, 1)
    d = np.linspace(-2, 2, 40000)  # 0 is not among them
    one, two = slope(d, 0.999 * most), slope(d, 1.05 * most)
    assert (np.sign(one) == np.sign(d)).all()
    ends = d[:-1][(two[:-1] < 0) & (two[1:] >= 0)]
    assert np.abs(ends) == pytest.approx([0.382, 0.382], abs=1e-3)


def test_the_constant_of_a_lipschitz_score_is_sharp():
    """f = -|x| has h'' = -2 phi(0)/sigma at 0."""
    assert cert.lam_lipschitz(3.0, 0.2) == near(3 * 2 * PHI0 / 0.2)


@pytest.mark.parametrize(
    ("p", "wanted"),
    [
        (0.01, (0.009999476, 0.074491660, 0.026652142)),
        (0.5, (0.428674082, 0.428674082, 0.398942280)),
        (0.682689492, (0.483941449, 0.300025507, 0.356342952)),
        (0.9, (0.339286064, 0.099474748, 0.175498332)),
    ],
)
def test_t9_curvature_at_a_value(p, wanted):
    found = cert.curvature_at(p)
    assert (found.lam, found.beta, found.gradient) == near(wanted)
    scaled = cert.curvature_at(p, sigma=0.5, width=3)
    assert (scaled.lam / 12, scaled.beta / 12, scaled.gradient / 6) == near(wanted)


@pytest.mark.parametrize("p", [0.003, 0.2, 0.5, 0.682689492, 0.97])
def test_curvature_at_a_value_is_the_optimum_of_a_linear_programme(p):
    """Over all f with values in [0, 1] and E f(t) = p, on a fine grid of t."""
    t = np.linspace(-7, 7, 4001)
    mass = np.exp(-t * t / 2)
    mass /= mass.sum()

    def least(value):
        found = linprog(value * mass, A_eq=mass[None], b_eq=[p], bounds=(0, 1), method="highs")
        return found.fun

    found = cert.curvature_at(p)
    assert -least(t * t - 1) == pytest.approx(found.lam, rel=2e-3)
    assert -least(1 - t * t) == pytest.approx(found.beta, rel=2e-3)
    assert -least(t) == pytest.approx(found.gradient, rel=2e-3)


@example(1e-12)
@example(1e-6)
@example(1 - 1e-12)
@given(st.floats(1e-12, 1, exclude_max=True))
def test_curvature_at_a_value_keeps_its_digits_in_the_tails(p):
    """Against a root of P(|z| < t) = p, at both ends."""
    t = math.sqrt(2) * float(erfinv(p)) if p < 0.9 else -float(ndtri((1 - p) / 2))
    found = cert.curvature_at(p)
    assert found.lam == pytest.approx(2 * t * PHI0 * math.exp(-t * t / 2), rel=1e-9, abs=0)
    assert found.beta == pytest.approx(cert.curvature_at(1 - p).lam, rel=1e-12 + 1e-15 / p)
    assert found.lam <= cert.lam_range(0, 1, 1)
    assert found.gradient <= cert.gradient_cap(0, 1, 1)


def test_curvature_of_a_score_at_the_end_of_its_range():
    for p in (0, 1, 5e-324):
        found = cert.curvature_at(p)
        assert (found.lam, found.beta, found.gradient) == pytest.approx((0, 0, 0), abs=1e-300)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_curvatures_at_a_value_are_attained(p):
    """By 1(|x| < t), by 1(|x| > t), and by a half-space, each with h = p at 0."""
    t, step = -float(ndtri((1 - p) / 2)), 1e-4
    inside, outside = (lambda x, t=t: ndtr(t - x) - ndtr(-t - x) for t in (t, -float(ndtri(p / 2))))
    found = cert.curvature_at(p)
    assert (inside(step) - 2 * inside(0) + inside(-step)) / step**2 == pytest.approx(-found.lam, rel=1e-5)
    assert -(outside(step) - 2 * outside(0) + outside(-step)) / step**2 == pytest.approx(found.beta, rel=1e-5)
    half = float(ndtr(ndtri(p) + step) - ndtr(ndtri(p) - step)) / (2 * step)
    assert half == pytest.approx(found.gradient, rel=1e-6)


def test_t10_local_certificates():
    for penalised in (True, False):
        found = cert.local_certificate(0.9, 0.9, 0.5, 0.25, 0.1, penalised)
        assert (found.radius, found.low, found.high) == near((0.246069677, 0.785064440, 0.961942855))
        assert (found.lam, found.beta, found.lip) == near((1.834492147, 0.838637276, 3.388567064))
        found = cert.local_certificate(0.99, 0.995, 0.5, 0.6, 0.05, penalised)  # rho above that of the range
        assert (found.radius, found.low, found.high) == near((0.099900910, 0.983271091, 0.997245266))
        assert (found.lam, found.beta, found.lip) == near((0.436307527, 0.066905832, 0.591030041))
        found = cert.local_certificate(0.45, 0.55, 0.25, 0.05, 0.02, penalised)
        assert (found.radius, found.lam, found.beta) == near((0.099788456, 7.743063185, 7.743063185))
        assert found.lip == near(12.634581219)


def test_local_certificates_know_when_there_is_none():
    found = cert.local_certificate(0.45, 0.55, 0.25, 0.2, 0.02)
    assert math.isinf(found.lip)
    sure = cert.local_certificate(1, 1, 0.25, 50, 0.1)  # a score that is 1 wherever it is looked at
    assert (sure.radius, sure.lip) == (0.1, 0)


@given(st.floats(0.01, 0.99), st.floats(0.05, 2), st.floats(0.05, 3), st.floats(0, 1), st.floats(0.1, 20))
def test_local_certificates_scale_and_are_never_worse_than_the_range(p, sigma, theta, epsilon, width):
    rho = theta / cert.lam_range(0, width, sigma)
    found = cert.local_certificate(p, p, sigma, rho, epsilon, width=width)
    unit = cert.local_certificate(p, p, 1.0, rho * width / sigma**2, epsilon / sigma)
    assert found.radius == pytest.approx(sigma * unit.radius, rel=1e-9)
    assert found.lam == pytest.approx(unit.lam * width / sigma**2, rel=1e-9)
    if theta < 0.99:
        whole = cert.lam_range(0, width, sigma)
        assert found.lip <= cert.lip_prox(rho, whole, whole) * (1 + 1e-9)
    flipped = cert.local_certificate(1 - p, 1 - p, sigma, rho, epsilon, width=width)
    assert (flipped.lam, flipped.beta) == pytest.approx((found.beta, found.lam), rel=1e-6)
    wider = cert.local_certificate(p / 2, (1 + p) / 2, sigma, rho, epsilon, width=width)
    assert wider.lam >= found.lam * (1 - 1e-12)
    assert wider.radius >= found.radius * (1 - 1e-12)


@st.composite
def steps_on_a_line(draw):
    """A step function in [0, 1] on the line, averaged under unit noise: its value and slope."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 6))
    edges = np.sort(rng.uniform(-3, 3, count))
    levels = rng.choice([0.0, 1.0, rng.random()], count + 1)
    jumps = np.diff(levels)

    def value(x):
        return levels[0] + ndtr(np.subtract.outer(x, edges)) @ jumps

    def slope(x):
        return np.exp(-(np.subtract.outer(x, edges) ** 2) / 2) @ jumps * PHI0

    return value, slope, float(rng.uniform(-3, 3))


@given(steps_on_a_line(), st.sampled_from([0.3, 0.8, 1.3, 2.5]), st.sampled_from([0.01, 0.1, 0.5]))
def test_local_certificates_hold_for_step_functions(score, theta, epsilon):
    """All stationary points near x0 are found on a grid: one per input, within the radius, and slow to move."""
    value, slope, start = score
    rho, p = theta / cert.lam_range(0, 1, 1), min(max(float(value(start)), 0.0), 1.0)
    found = cert.local_certificate(p, p, 1.0, rho, epsilon, penalised=False)
    ball = start + np.linspace(-found.radius, found.radius, 201)
    assert found.low - 1e-12 <= value(ball).min() <= value(ball).max() <= found.high + 1e-12
    bend = np.diff(slope(ball)) / np.diff(ball)
    assert -found.lam - 1e-6 <= bend.min() <= bend.max() <= found.beta + 1e-6
    assume(math.isfinite(found.lip))
    maps, inputs = [], start + np.linspace(-epsilon, epsilon, 9)
    for x in inputs:
        delta = np.linspace(-1, 1, 4001) * rho * 0.4
        force = slope(x + delta) + delta / rho
        (at,) = np.nonzero((force[:-1] < 0) & (force[1:] >= 0))
        assert len(at) == 1
        root = delta[at[0]] - force[at[0]] * (delta[1] - delta[0]) / (force[at[0] + 1] - force[at[0]])
        root -= (slope(x + root) + root / rho) / (1 / rho + (slope(x + root + 1e-6) - slope(x + root - 1e-6)) / 2e-6)
        assert abs(x + root - start) <= found.radius + 1e-9
        maps.append(-float(root) / rho)
    moved = np.abs(np.subtract.outer(maps, maps))
    assert (moved <= found.lip * np.abs(np.subtract.outer(inputs, inputs)) + 1e-7).all()


# ---- from a budget to statements about the map ----


@pytest.mark.parametrize(
    ("values", "costs"),
    [
        ([5, 4, 3, 2.5, 2, 1, 0.5, 0], [0.353553391, 1.479019946, 3.195048252]),
        ([10, 1.1, 1, 0.9, 0.2, 0.1], [math.sqrt(0.005), math.sqrt(0.486666667), math.sqrt(69.5)]),
    ],
)
def test_t12_costs_of_swaps(values, costs):
    values = torch.tensor(values, dtype=torch.float64)
    found = [math.sqrt(cert.swap_cost(values[:3].flip(0)[:j], values[3:][:j])) for j in (1, 2, 3)]
    assert found == near(costs)


def test_t12a_overlaps():
    values = [5, 4, 3, 2.5, 2, 1, 0.5, 0]
    budgets = (0.3, 0.36, 1.5, 1.8, 3.0, 3.2)
    assert [cert.topk_overlap(values, 3, b) for b in budgets] == [3, 2, 1, 1, 1, 0]


maps = st.lists(st.one_of(st.floats(-5, 5), st.integers(-2, 2).map(float)), min_size=2, max_size=7)


def cheapest_sets(values, k):
    """The squared change that makes each set of k entries a top set, by a search for its threshold."""
    v = np.array(values)
    for chosen in itertools.combinations(range(len(v)), k):
        inside = np.isin(np.arange(len(v)), chosen)

        def cost(t, inside=inside):
            return (np.maximum(t - v[inside], 0) ** 2).sum() + (np.maximum(v[~inside] - t, 0) ** 2).sum()

        ends = [cost(t) for t in v]
        found = minimize_scalar(cost, bounds=(v.min(), v.max() + 1e-9), method="bounded", options={"xatol": 1e-12})
        yield chosen, min(found.fun, *ends)


@given(maps, st.data())
def test_overlaps_are_those_of_an_exhaustive_search(values, data):
    k = data.draw(st.integers(1, len(values)))
    top = set(sorted(range(len(values)), key=lambda i: (-values[i], i))[:k])
    costs = [(len(top & set(chosen)), cost) for chosen, cost in cheapest_sets(values, k)]
    for budget in (0.0, *data.draw(st.lists(st.floats(0, 8), min_size=3, max_size=3))):
        found = cert.topk_overlap(values, k, budget)
        within = [(kept, cost) for kept, cost in costs if cost <= budget**2]
        assert found <= min(kept for kept, _ in within)
        # and no smaller than what a slightly larger budget would leave
        assert found >= min(kept for kept, cost in costs if cost <= budget**2 * (1 + 1e-7) + 1e-9)


@pytest.mark.parametrize("values", [[5.0, 4.0, 3.0, 2.5, 2.0], [10.0, 1.1, 1.0, 0.9, 0.2], [1.0, 0.5, 0.4, 0.3, -2.0]])
def test_costs_of_sets_are_those_of_a_quadratic_programme(values):
    """The nearest map with these entries at least as large as all others, by a general solver."""
    for chosen, cost in cheapest_sets(values, 2):
        others = [i for i in range(5) if i not in chosen]
        above = [{"type": "ineq", "fun": lambda y, i=i, j=j: y[i] - y[j]} for i in chosen for j in others]
        found = minimize(
            lambda y: ((y - values) ** 2).sum(), np.zeros(5), constraints=above, method="SLSQP", options={"ftol": 1e-14}
        )
        assert found.fun == pytest.approx(cost, rel=1e-5, abs=1e-7)


@given(maps, st.data())
def test_overlap_falls_with_the_budget_and_follows_the_map(values, data):
    k = data.draw(st.integers(1, len(values)))
    budgets = sorted(data.draw(st.lists(st.floats(0, 20), min_size=4, max_size=4)))
    found = [cert.topk_overlap(values, k, b) for b in budgets]
    assert found == sorted(found, reverse=True)
    assert found[0] <= k
    assert cert.topk_overlap(values, k, math.inf) == max(0, 2 * k - len(values))
    moved, budget = [v + 7 for v in values], budgets[1]
    turned = torch.tensor(values[::-1], dtype=torch.float64).view(1, -1)
    assert cert.topk_overlap(turned, k, budget) == cert.topk_overlap(np.array(values), k, budget)
    assert cert.topk_overlap(moved, k, budget * (1 + 1e-6) + 1e-6) <= found[1]


def test_overlap_is_never_beaten_by_chance_or_by_the_cheapest_swap():
    rng = np.random.default_rng(0)
    for size, k in [(20, 5), (200, 50), (1000, 100)]:
        values = rng.normal(size=size)
        top = set(np.argsort(-values)[:k])
        for budget in (0.05, 0.3, 1.0, 3.0):
            found, least = cert.topk_overlap(values, k, budget), k
            order = np.argsort(-values)
            for _ in range(60):
                j = rng.integers(1, min(k, size - k) + 1)
                way = rng.normal(size=size) if rng.random() < 0.3 else np.zeros(size)
                way[order[k - j : k]] -= rng.random(j) + 0.5
                way[order[k : k + j]] += rng.random(j) + 0.5
                moved = values + budget * way / np.linalg.norm(way)
                least = min(least, len(top & set(np.argsort(-moved)[:k])))
            assert least >= found


RANKINGS = {  # of pixels by their three channels, and how much more such a score may move than the map
    "l2": (lambda m: np.linalg.norm(m, axis=0), 1),
    "largest": (lambda m: np.abs(m).max(0), 1),
    "sum": (lambda m: m.sum(0), math.sqrt(3)),
    "sum of sizes": (lambda m: np.abs(m).sum(0), math.sqrt(3)),
}


@pytest.mark.parametrize("name", RANKINGS)
def test_overlap_of_pixels_with_several_channels(name):
    """Each channel of the lowest members pushed down and of the highest others up, towards a common level."""
    rank, factor = RANKINGS[name]
    rng, k, reached = np.random.default_rng(1), 6, 0
    for _ in range(40):
        m = rng.normal(size=(3, 24)) + (0 if name == "sum" else 2)
        scores = rank(m)
        order = np.argsort(-scores)
        for j in (1, 2, 3):
            leave, enter = order[k - j : k], order[k : k + j]
            level = (scores[leave].sum() + scores[enter].sum()) / (2 * j)
            moved = m.copy()
            for i in (*leave, *enter):
                gap = level + (-1e-6 if i in leave else 1e-6) - scores[i]
                if name == "l2":
                    moved[:, i] *= 1 + gap / scores[i]
                elif name == "largest":
                    top = np.abs(m[:, i]).argmax()
                    moved[top, i] += gap * np.sign(m[top, i])
                else:
                    moved[:, i] += gap / 3 * (1 if name == "sum" else np.sign(m[:, i]))
            budget = np.linalg.norm(moved - m)
            kept = len(set(order[:k]) & set(np.argsort(-rank(moved))[:k]))
            found = cert.topk_overlap(scores, k, factor * budget)
            assert found <= kept
            reached += found == kept == k - j
    assert reached > 40  # of 120: the attack is the cheapest one often enough to show that the budget is right


@pytest.mark.parametrize("j", [1, 2, 3])
def test_overlap_is_attained_by_the_cheapest_swap(j):
    """Just above its cost the swap takes j members out, and just below no change does."""
    values = np.array([10.0, 1.1, 1.0, 0.9, 0.2, 0.1])
    cost, t = [(0.005, 0.95), (0.486666667, 0.766666667), (69.5, 2.8)][j - 1]
    moved = values.copy()
    moved[3 - j : 3] = np.minimum(moved[3 - j : 3], t - 1e-6)
    moved[3 : 3 + j] = np.maximum(moved[3 : 3 + j], t + 1e-6)
    assert np.linalg.norm(moved - values) == pytest.approx(math.sqrt(cost), rel=1e-4)
    assert len({0, 1, 2} & set(np.argsort(-moved)[:3])) == 3 - j
    assert cert.topk_overlap(values, 3, math.sqrt(cost) * 1.0001) == 3 - j
    assert cert.topk_overlap(values, 3, math.sqrt(cost) * 0.9999) == 3 - j + 1


def test_overlap_of_ties_and_of_tiny_gaps():
    assert cert.topk_overlap([1.0, 1.0, 0.0], 1, 0.0) == 0
    assert cert.topk_overlap([1.0, 0.0, 0.0, 0.0], 2, 0.0) == 1  # beyond the non-zeros all are ties
    gap = float(np.spacing(1e8))
    for budget, kept in ((0.70 * gap, 1), (0.71 * gap, 0)):  # a swap costs gap/sqrt(2): the midpoint must be exact
        assert cert.topk_overlap([1e8 + gap, 1e8], 1, budget) == kept


def test_t14_supports():
    assert cert.support_survivors([0.1, 0.2, 0.2, 0.5], 0.3) == 1  # a sum of squares on the edge of rounding
    assert cert.support_entrants([0.05, 0.1, 0.3], 0.12) == 2
    assert cert.support_entrants([-0.5, 0.3], 0.1) == 1  # beyond the threshold already
    assert cert.support_survivors([0.0, 0.0, 1.0], 0.5) == 1  # zeros are none of them
    assert (cert.support_survivors([], 1), cert.support_entrants([], 1)) == (0, 0)


@given(st.lists(st.floats(-3, 3).map(lambda v: round(v, 3)), min_size=1, max_size=8), st.floats(0, 6))
def test_supports_are_those_of_an_exhaustive_search(values, budget):
    alive = [abs(v) for v in values if v]
    subsets = [each for n in range(len(alive) + 1) for each in itertools.combinations(alive, n)]
    lost = max(len(each) for each in subsets if math.hypot(*each) <= budget)
    within = max(len(each) for each in subsets if math.hypot(*each) <= budget * (1 + 1e-8))
    assert len(alive) - within <= cert.support_survivors(values, budget) <= len(alive) - lost
    assert cert.support_survivors(values, budget) >= sum(v > budget * (1 + 1e-8) for v in alive)
    slacks = [abs(v) for v in values]
    subsets = [each for n in range(len(slacks) + 1) for each in itertools.combinations(slacks, n)]
    lost = max(len(each) for each in subsets if math.hypot(*each) <= budget)
    within = max(len(each) for each in subsets if math.hypot(*each) <= budget * (1 + 1e-8))
    assert lost <= cert.support_entrants(slacks, budget) <= within


@given(problems(), st.sampled_from([0.5, 2.0]))
def test_supports_of_exact_maps_change_no_more_than_certified(problem, eta):
    rho, lam, beta, hessian, slope, x, other, _ = problem
    here, there = (exact(hessian, slope, at, rho, eta) for at in (x, other))
    far = np.linalg.norm(other - x)
    stay = int(((here != 0) & (np.sign(there) == np.sign(here))).sum())
    came = int(((here == 0) & (there != 0)).sum())
    dual = hessian @ (x + here) + slope
    assert stay >= cert.support_survivors(here / rho, cert.lip_prox(rho, lam, beta) * far)
    slacks = eta - np.abs(dual[here == 0])
    assert came <= cert.support_entrants(slacks, cert.lip_dual(rho, lam, beta) * far)


def test_t13_normalised_distances():
    found = [cert.normalised_distance(s, 1) for s in (0.6, 0.05, 0.99)]
    assert found == near([0.632455532, 0.050015642, 1.310673598])
    assert [cert.normalised_distance(1, 1), cert.normalised_distance(0, 0)] == [2, 2]
    assert cert.normalised_distance(math.inf, 3) == 2


@given(st.floats(0.01, 0.999), st.floats(0.1, 50), st.integers(0, 2**32 - 1))
def test_normalised_distance_is_attained_and_never_exceeded(s, norm, seed):
    rng = np.random.default_rng(seed)
    m = rng.normal(size=5)
    m *= norm / np.linalg.norm(m)
    bound = cert.normalised_distance(s * norm, norm)
    side = rng.normal(size=5)
    side -= (side @ m) * m / norm**2
    side /= np.linalg.norm(side)
    tangent = math.sqrt(1 - s * s) * (math.sqrt(1 - s * s) * m + s * norm * side)
    assert np.linalg.norm(tangent - m) == pytest.approx(s * norm)
    assert np.linalg.norm(tangent / np.linalg.norm(tangent) - m / norm) == pytest.approx(bound, rel=1e-6)
    assert tangent @ m / norm / np.linalg.norm(tangent) == pytest.approx(math.sqrt(1 - s * s))
    for _ in range(20):
        way = rng.normal(size=5)
        other = m + s * norm * way / np.linalg.norm(way)
        assert np.linalg.norm(other / np.linalg.norm(other) - m / norm) <= bound * (1 + 1e-9)
    assert bound <= math.sqrt(2) * s


def test_how_far_a_probability_can_be_certified():
    """The most favourable classifier, a half-space at 1/2: the constant over its gradient is 1.213061/sigma."""
    sigma, theta, epsilon = 0.5, 0.25, 0.01
    lam = cert.lam_range(0, 1, sigma)
    budget = cert.lip_prox(theta / lam, lam, lam) * epsilon
    assert budget / cert.gradient_cap(0, 1, sigma) == near(1.213061 * epsilon / sigma / (1 - theta))


# ---- derivatives of solved maps ----


def pulled(hessian, slope, x, delta, rho, eta, w, prior):
    from moreaugrad.model.prepared import Engine
    from moreaugrad.model.score import ClassScore

    h, b, x, delta, w = (torch.tensor(np.array(v, float)) for v in (hessian, slope, [x], [delta], [w]))

    def forward(v):
        return torch.stack([((v @ h) * v).sum(1) / 2 + v @ b, v.sum(1)], 1)

    problem = Envelope(ClassScore(Engine(forward), 0, 1), prior(x), rho, x, eta)
    derivative = mg.Implicit(steps=20, tol=1e-14)
    return derivative.pull(problem, delta, torch.tensor([eta], dtype=torch.float64), w)[0].tolist()


def test_t18_derivative_of_the_sparse_map():
    found = pulled(SHARP, [-3, -10], [0, 0], [1, 0], 1.0, 1.0, [1, 0], lambda x: L1())
    assert found == near([0.5, 5])
    delta = exact(SHARP, [-3, -10], [0, 0], 1.0, 0.0)
    found = pulled(SHARP, [-3, -10], [0, 0], delta, 1.0, 0.0, [1, 0], lambda x: Zero())
    assert found == near([0.009803922, 0.098039216])


def test_t19_derivative_of_the_group_map():
    hessian, w = [[2.0, 1, 1], [1, 3, 0], [1, 0, 4]], [1.0, -1, 0]
    groups = mg.Group(torch.tensor([0, 0, 1])).for_batch
    found = pulled(hessian, [0, 0, 0], [0, 0, 0], [0.3, 0.4, 0], 1.0, 0.5, w, groups)
    assert found == near([0.358974359, -0.487179487, 0.312820513])
    unit, kept = np.array([0.6, 0.8]), np.array(hessian)[:2, :2]
    system = np.eye(2) + kept + 0.5 / 0.5 * (np.eye(2) - np.outer(unit, unit))
    q = np.linalg.solve(system, w[:2])
    assert q == near([0.312820513, -0.266666667])
    assert np.array(hessian)[:, :2] @ q == near(found)


@given(problems(), st.sampled_from([0.0, 0.3, 1.0]))
def test_derivatives_are_central_differences_of_exact_maps(problem, eta):
    rho, _, _, hessian, slope, x, _, rng = problem
    delta, w, step = exact(hessian, slope, x, rho, eta), rng.normal(size=3), 1e-6
    dual = np.abs(hessian @ (x + delta) + slope)
    if eta:  # away from the changes of the active set, where there is no derivative
        assume((np.abs(delta[delta != 0]) > 1e-3).all() and (eta - dual[delta == 0] > 1e-3).all())
    prior = (lambda x: L1()) if eta else (lambda x: Zero())
    found = pulled(hessian, slope, x, delta, rho, eta, w, prior)
    sides = [[exact_map(hessian, slope, x + s * e, rho, eta) @ w for e in step * np.eye(3)] for s in (1, -1)]
    wanted = np.subtract(*sides) / (2 * step)
    assert np.linalg.norm(found - wanted) <= 1e-6 * max(1.0, np.linalg.norm(wanted))


# ---- what is refused, and the way out ----


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: cert.lip_vanilla(0, 0.5, 1), ValueError, "rho must be a positive finite number"),
        (lambda: cert.lip_prox(2, 0.5, 1), ValueError, r"rho \* lam must be below 1.*take rho below 2.*larger sigma"),
        (lambda: cert.lip_prox(1, -0.1, 1), ValueError, "lam must be a known finite number >= 0.*lam_range"),
        (lambda: cert.lip_dual(1, None, 1), TypeError, "lam must be a known number, got None; lam_range"),
        (lambda: cert.lip_dual(1, math.inf, 1), ValueError, "lam must be a known finite number"),
        (lambda: cert.lip_prox(1, 0.5, -0.6), ValueError, "beta must be at least -lam.*math.inf stands for"),
        (lambda: cert.lip_prox(1, 0.5, None), TypeError, "beta must be a number, got None; math.inf"),
        (lambda: cert.lip_prox(1, 0.5, math.nan), ValueError, "beta must be at least -lam"),
        (lambda: cert.holder_prox(1, 0.5, -1, 0), ValueError, "epsilon must be a finite number >= 0"),
        (lambda: cert.map_error(-1, 0, 1, 0.5, 1), ValueError, "res must be a finite number >= 0"),
        (lambda: cert.lam_lipschitz(None, 1), TypeError, "L must be a known number, got None; .*score='prob'"),
        (lambda: cert.lam_lipschitz(math.inf, 1), ValueError, "L must be a known finite number.*lam_range"),
        (lambda: cert.lam_range(1, 0, 1), ValueError, "low < high.*clip it"),
        (lambda: cert.lam_range(0, math.inf, 1), ValueError, "a logit has no range"),
        (lambda: cert.curvature_at(1.2), ValueError, r"p must be in \[0, 1\]"),
        (lambda: cert.local_certificate(0.6, 0.4, 1, 1, 1), ValueError, "p_lo <= p_hi"),
        (lambda: cert.topk_overlap([1.0, 2.0], 3, 1), ValueError, "k must be at most.*got k=3 of 2"),
        (lambda: cert.topk_overlap([1.0, 2.0], 0, 1), ValueError, "k must be at least 1"),
        (lambda: cert.topk_overlap([1.0, math.nan], 1, 1), ValueError, "scores must be finite"),
        (lambda: cert.topk_overlap("map", 1, 1), TypeError, "scores must be numbers"),
        (lambda: cert.topk_overlap([1.0, 2.0], 1, -1), ValueError, "budget must be at least 0"),
        (lambda: cert.support_survivors([1.0], math.nan), ValueError, "budget must be at least 0"),
        (lambda: cert.normalised_distance(1, -1), ValueError, "norm must be a finite number >= 0"),
    ],
)
def test_bad_numbers(call, error, words):
    with pytest.raises(error, match=words):
        call()
