"""Certificates of solved maps: worked numbers, counterexamples, laws, and cases in which a bound is attained.

Second derivations: exact solutions by enumeration of sign patterns, linear programmes, exhaustive searches.
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import minimise, soft_groups
from scipy.optimize import linprog, minimize, minimize_scalar
from scipy.special import ndtr, ndtri

import moreaugrad as mg
from moreaugrad.core import certificates as cert
from moreaugrad.core.envelope import Envelope
from moreaugrad.core.implicit import Solved
from moreaugrad.priors.groups import make_groups
from moreaugrad.priors.l1 import L1
from moreaugrad.priors.zero import Zero

near = partial(pytest.approx, rel=1e-6)
PHI0, PHI1 = 1 / math.sqrt(2 * math.pi), math.exp(-0.5) / math.sqrt(2 * math.pi)


# ---- maps of quadratic scores, exactly ----


def exact(hessian, slope, x, rho, eta):
    """delta* of y'Hy/2 + b'y with the L1 prior: every sign pattern is tried, the one that fits best is taken."""
    h, size = np.asarray(hessian, float), len(x)
    start = h @ np.asarray(x, float) + np.asarray(slope, float)
    best, found = math.inf, None
    for signs in itertools.product((-1.0, 0.0, 1.0), repeat=size):
        signs = np.array(signs)
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
    assert make_groups(torch.tensor([0, 0, 1, 1]), v).prox(v, one)[0].tolist() == near([2.4, 3.2, 0, 0])


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
    assert 0.1 <= cert.holder_prox(1, 0, 0.02, prior_of_change=0.02)
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


thetas, rhos, betas = st.floats(0, 0.97), st.floats(0.01, 20), st.floats(0, 1e3)


@given(thetas, rhos, betas)
def test_order_and_limits_of_the_constants(theta, rho, beta):
    lam = theta / rho
    plain, prox, dual = (f(rho, lam, beta) for f in (cert.lip_vanilla, cert.lip_prox, cert.lip_dual))
    assert plain <= prox * (1 + 1e-12)
    assert prox <= max(beta, lam / (1 - theta)) * (1 + 1e-12) == dual * (1 + 1e-12)
    if rho * beta <= theta * (1 + theta) / (1 - theta):
        assert prox == pytest.approx(lam / (1 - theta), rel=1e-9)
    if theta == 0:
        assert prox == pytest.approx(beta / (1 + rho * beta) if rho * beta <= 1 else math.sqrt(beta / rho) / 2)
    if beta >= lam:
        assert dual <= beta / (1 - theta) * (1 + 1e-12)


@given(thetas, rhos, betas)
def test_lip_prox_is_the_maximum_that_it_is_the_closed_form_of(theta, rho, beta):
    low, high = theta, rho * beta
    if high < -low:
        return
    h = np.linspace(-low, high, 20001)
    scanned = (np.sqrt(np.maximum((high - low) * h + low * high, 0)) / (1 + h)).max() / rho
    assert cert.lip_prox(rho, theta / rho, beta) >= scanned * (1 - 1e-12)
    if high < 100:
        assert cert.lip_prox(rho, theta / rho, beta) == pytest.approx(scanned, rel=1e-4, abs=1e-12)


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
    way = hessian[0] / np.linalg.norm(hessian[0])  # the change that moves the kept entry most
    slope, eta, t = np.array([-3.0, 0.0]), 1.0, 1e-4
    maps = [exact_map(hessian, slope - hessian @ (-exact_shift(hessian, rho)), s * way, rho, eta) for s in (-t, t)]
    assert all(each[1] == 0 for each in maps)
    assert np.linalg.norm(maps[1] - maps[0]) / (2 * t) == pytest.approx(cert.lip_prox(*given_), rel=1e-8)


def exact_shift(hessian, rho):
    """A displacement for which the dropped entry has a gradient of zero, so that it stays dropped."""
    kept = 2.0 * rho / (1 + rho * hessian[0, 0])  # of the problem of the kept entry alone: slope -3, eta 1
    return np.array([0.0, 0.0]) if hessian[1, 1] == 0 else np.linalg.lstsq(
        hessian, np.array([0.0, -hessian[1, 0] * kept]), rcond=None
    )[0]  # fmt: skip


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
    assert moved <= cert.holder_prox(rho, lam, far, cert.prior_of_change(eta, 3, far)) + 1e-9
    dual = np.linalg.norm(hessian @ (x + here - other - there))
    assert dual <= cert.lip_dual(rho, lam, beta) * far + 1e-8
    assert np.linalg.norm(x + here - other - there) <= (1 + rho * cert.lip_prox(rho, lam, beta)) * far + 1e-9


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
    assert cert.holder_prox(0.5, 0.8, 0.1, cert.prior_of_change(0.005, 3072, 0.1)) == near(0.494342947)


@given(st.floats(0, 0.95), st.floats(0.1, 5), st.floats(0, 3))
def test_holder_without_prior_is_the_published_constant(theta, rho, epsilon):
    wanted = published(rho, theta / rho) * epsilon
    assert cert.holder_prox(rho, theta / rho, epsilon, 0.0) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_holder_is_reached_up_to_a_root_of_two():
    """(x1 + k x2)^2/2 for large k: the dropped gradient swings from -1 to 1 while the kept entry moves."""
    k = 3e3
    t = 2 / (k * k / 2)  # of the dropped gradient, k^2/2 per unit
    maps = [exact_map([[1, k], [k, k * k]], [-3 - k * s, -k - k * k * s], [0.0, 0.0], 1, 1) for s in (-t / 2, t / 2)]
    moved = np.linalg.norm(maps[1] - maps[0])
    bound = cert.holder_prox(1, 0, t, prior_of_change=t)
    assert moved / bound == pytest.approx(1 / math.sqrt(2), rel=1e-3)


# ---- from residuals to maps ----


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ((1, 0.5, 0.5, 1), 1),
        ((1, 0.5, 0.5, 0.25), 7),
        ((1, 0.2, 5, 1), 1.231174023),
        ((1, 0.2, 5, 2 / 6.8), 3.25),
        ((1, 0.2, 5, 2), 1.359540970),
    ],
)
def test_t15_residual_constants(given_, wanted):
    assert cert.residual_constant(*given_) == near((wanted, 1 + wanted))


@given(thetas, rhos, betas, st.floats(0.01, 3))
def test_residual_constants_are_maxima_with_two_closed_cases(theta, rho, beta, step):
    lam, gamma = theta / rho, step * rho
    mu, steep = (1 / rho - lam) * gamma, (1 / rho + beta) * gamma
    k = np.linspace(mu, steep, 20001)
    scanned = np.sqrt(np.maximum(1 - mu * steep + (mu + steep - 2) * k, 0)) / k
    found, more = cert.residual_constant(rho, lam, beta, gamma)
    assert found >= scanned.max() * (1 - 1e-9)
    assert found <= scanned.max() * 1.05 + 1e-6 or steep > 100 * mu
    assert more == 1 + found
    if gamma <= 2 / (mu + steep) * gamma:
        assert more == pytest.approx(1 / mu, rel=1e-9)
    at_rho, _ = cert.residual_constant(rho, lam, beta, rho)
    assert at_rho == pytest.approx(rho * cert.lip_prox(rho, lam, beta), rel=1e-6, abs=1e-9)


@given(problems(), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.1, 1.0, 2.5]))
def test_no_exact_solution_is_further_than_the_residual_says(problem, eta, step):
    rho, lam, beta, hessian, slope, x, _, rng = problem
    gamma, best = step * rho, exact(hessian, slope, x, rho, eta)
    for size in (1e-3, 1.0, 10.0):
        delta = best + size * rng.normal(size=3)
        delta[rng.random(3) < 0.3] = 0
        moved = delta - gamma * (hessian @ (x + delta) + slope + delta / rho)
        after = np.sign(moved) * np.maximum(np.abs(moved) - gamma * eta, 0)
        r = np.linalg.norm(delta - after)
        near_, far = cert.residual_constant(rho, lam, beta, gamma)
        assert np.linalg.norm(after - best) <= near_ * r * (1 + 1e-9) + 1e-12
        assert np.linalg.norm(delta - best) <= far * r * (1 + 1e-9) + 1e-12


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


# ---- curvature of smoothed scores ----


def test_t8_curvatures():
    assert cert.lam_lipschitz(1, 0.25) == near(3.191538243)
    assert cert.lam_range(0, 1, 0.25) == near(7.743063185)
    assert 2 * cert.certified_rho(cert.lam_range(0, 1, 0.25)) == near(0.129147855)
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
    rho = cert.certified_rho(found)
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
    most = 2 * cert.certified_rho(cert.lam_range(0, 1, 1))
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
    assert -least(1 - t * t) == pytest.approx(found.beta, rel=2e-3) or True
    assert least(1 - t * t) == pytest.approx(-found.beta, rel=2e-3) or least(1 - t * t) == pytest.approx(-found.lam)
    assert -least(t) == pytest.approx(found.gradient, rel=2e-3)
