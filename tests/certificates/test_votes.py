"""Certificates of votes: networks whose votes are known exactly, attacks on them, coverage, and refusals."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import moreaugrad as mg
from benchmarks.vote_violations import Case, Exponentials, changes, exact_votes
from moreaugrad.certificates import theory
from moreaugrad.certificates.theory import Box

SIGMA = 0.5
NOISE = mg.Smoothing(sigma=SIGMA)


class Linear(nn.Module):
    """<w, x> and its negative: the gradient is w whatever the noise."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights
        self.eval()

    def forward(self, x):
        value = x.flatten(1) @ self.weights
        return torch.stack([value, -value], 1)


def exponentials(sizes, seed=0):
    """A score of groups of these sizes."""
    torch.manual_seed(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    along = torch.randn(len(labels), dtype=torch.float64)
    norms = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, labels, along.square()).sqrt()
    return Exponentials(labels, along / norms[labels])


def voting(network, units, **options):
    """The method that has one vote for each noisy copy."""
    return mg.MoreauGrad(network, 0, statistic="votes", tau=1.2 / units, smoothing=NOISE, **options)


def refuses_gradients(x):
    raise AssertionError("no gradient may be taken before the options are judged")


# ---- closed forms ----


def test_votes_of_a_linear_score_are_all_or_none():
    weights = torch.linspace(1, 2, 20, dtype=torch.float64)
    method = mg.MoreauGrad(Linear(weights), 0, statistic="votes", tau=0.25, smoothing=NOISE, prior=mg.L1(), eta=0.2)
    (found,) = mg.certify(method, torch.zeros(1, 20, dtype=torch.float64), 0, 0.1, noise=mg.FreshNoise(3000, 0.01))
    assert found.map.tolist() == pytest.approx([0.0] * 15 + [0.8] * 5)
    assert (found.support.active, found.support.survivors, found.support.entrants) == (5, 5, 0)
    assert found.values.stays.tolist() == found.topk.members.tolist()[:15] + [True] * 5
    assert found.values.stays_zero.tolist() == [True] * 15 + [False] * 5
    sure = torch.tensor((0.01 / 40) ** (1 / 3000), dtype=torch.float64)
    least = torch.special.ndtr(torch.special.ndtri(sure) - 0.1 / SIGMA) - 0.2
    assert found.values.lower[-5:].tolist() == pytest.approx([float(least)] * 5)
    assert found.violations(found.map) == ()


def test_two_votes_are_one_half_space_whose_bound_is_attained():
    network, x = exponentials([1, 1]), torch.tensor([[0.3, 0.2]], dtype=torch.float64)
    gap = network.levels(x)[0] @ torch.tensor([1.0, -1.0], dtype=torch.float64)
    share = torch.special.ndtr(gap / (2**0.5 * SIGMA))
    assert exact_votes(network.levels(x), SIGMA)[0, 0] == pytest.approx(float(share), abs=1e-12)
    way = torch.autograd.functional.jacobian(lambda at: exact_votes(network.levels(at), SIGMA)[0, 0], x)
    for epsilon in (0.01, 0.2, 0.6):
        worst = exact_votes(network.levels(x - epsilon * way / way.norm()), SIGMA)[0, 0]
        box = theory.shift(Box(share[None], share[None]), epsilon / SIGMA)
        assert worst == pytest.approx(float(box.lower), abs=1e-10)
        assert worst >= box.lower.item()


def test_counts_agree_with_the_exact_votes():
    for sizes, options in (
        ([1] * 6, {}),
        (
            [3, 1, 2, 2],
            {"prior": mg.Group(torch.arange(4).repeat_interleave(torch.tensor([3, 1, 2, 2]))[None]), "eta": 0.0},
        ),
    ):
        network = exponentials(sizes)
        x = 0.3 * torch.randn(1, sum(sizes), dtype=torch.float64)
        noise = mg.FreshNoise(20_000, 0.001, seed=1)
        (found,) = mg.certify(voting(network, len(sizes), **options), x, 0, 0.0, noise=noise)
        truth = exact_votes(network.levels(x), SIGMA)[0][network.labels]
        assert found.values.holds(truth)
        assert float((found.map - truth).abs().max()) < 0.02
        assert float((found.map - truth).norm()) <= found.accuracy.error


def test_votes_of_groups_are_not_votes_of_their_entries():
    """One strong entry against a group of many that are weaker each, but not together."""
    labels = torch.tensor([0, 1, 1, 1, 1])
    weights = torch.tensor([1.5, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    x = torch.zeros(1, 5, dtype=torch.float64)
    entries = voting(Linear(weights), 5)
    groups = voting(Linear(weights), 2, prior=mg.Group(labels[None]), eta=0.0)
    maps = [mg.certify(each, x, 0, 0.01, noise=mg.FreshNoise(200))[0].map.tolist() for each in (entries, groups)]
    assert maps == [[1, 0, 0, 0, 0], [0, 1, 1, 1, 1]]


def test_the_map_is_that_of_the_method():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Softplus(), nn.Linear(16, 3)).double().eval()
    x = torch.rand(1, 3, 4, 4, dtype=torch.float64)
    method = mg.SparseMoreauGrad(network, 0, sparsity=0.0625, statistic="votes", smoothing=NOISE, budget=4000)
    (found,) = mg.certify(method, x, 1, 0.02, noise=mg.FreshNoise(4000, seed=3))
    assert found.method.eta == pytest.approx(float(method.explain(x, 1).eta), abs=0.04)
    other = found.method.attribute(x, 1)[0]
    assert float((found.map - other).abs().max()) < 0.06
    assert int((found.map > 0).sum()) == found.support.active == 3
    dense = mg.SmoothGrad(network, smoothing=NOISE, statistic="votes")
    plain = mg.MoreauGrad(network, 0, smoothing=NOISE, statistic="votes")
    maps = [mg.certify(each, x, 1, 0.02, noise=mg.FreshNoise(500, seed=3))[0].map for each in (dense, plain)]
    assert maps[0].equal(maps[1])


# ---- soundness ----


@pytest.mark.parametrize("kind", ["dense", "l1", "group"])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_no_attack_breaks_it_and_a_bound_a_fifth_too_narrow_is_caught(kind, share):
    sizes = [2, 1, 3, 1] if kind == "group" else [1] * 4
    network, draw = exponentials(sizes, seed=2), torch.Generator().manual_seed(0)
    prior = {
        "group": {"prior": mg.Group(network.labels[None]), "sparsity": 0.5},
        "l1": {"prior": mg.L1(), "sparsity": 0.5},
    }
    method = voting(network, 4, **prior.get(kind, {}))
    x = 0.3 * torch.randn(1, sum(sizes), dtype=torch.float64, generator=draw)
    (found,) = mg.certify(method, x, 0, share * SIGMA, noise=mg.FreshNoise(20_000, 1e-6, seed=1))
    assert share == 0.5 or not found.vacuous
    eta = float(getattr(getattr(found.method, "method", found.method), "eta", None) or 0.0)
    case = Case(network, x, SIGMA, method)
    truth, tried, caught = case.votes(x), 0, 0
    for _, at in changes(case, found, eta, 200, draw):
        for other in case.maps(at, eta):
            tried += 1
            assert found.violations(other) == ()
        narrow = theory.shift(Box(truth[0], truth[0]), 0.8 * share)
        caught += int(((case.votes(at) < narrow.lower) | (case.votes(at) > narrow.upper)).sum())
    assert tried > 150
    assert caught > 0


def test_a_map_that_breaks_each_promise_is_named():
    network = exponentials([1] * 6, seed=1)
    x = 0.4 * torch.randn(1, 6, dtype=torch.float64)
    method = voting(network, 6, prior=mg.L1(), sparsity=0.5)
    (found,) = mg.certify(method, x, 0, 0.01, noise=mg.FreshNoise(20_000, seed=1))
    assert found.support.survivors > 0
    gone = torch.where(found.values.stays, 0.0, found.map)
    assert {"overlap", "values", "support"} <= set(found.violations(gone))
    entered = torch.where(found.values.stays_zero, 1.0, found.map)
    assert {"overlap", "values", "support", "budget", "distance"} <= set(found.violations(entered))
    assert found.violations(found.values.lower.clone()) == found.violations(found.values.upper.clone()) == ()


def test_limits_hold_at_once_as_often_as_they_say():
    truth = exact_votes(torch.randn(1, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), SIGMA)[0]
    torch.manual_seed(0)
    counts = torch.distributions.Multinomial(400, truth).sample((4000,)).long()
    box = theory.vote_box(counts.flatten(), 400, 0.1, 12)
    wide = truth.repeat(4000)
    held = ((box.lower <= wide) & (wide <= box.upper)).view(4000, 12).all(1).double().mean()
    assert 0.9 <= float(held) < 0.995  # never less than asked, and not for nothing


def test_two_computed_maps_agree_as_often_as_they_say():
    """Of an x' chosen before its noise, where both maps err."""
    network = exponentials([1] * 4, seed=2)
    x = 0.3 * torch.randn(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    way = torch.autograd.functional.jacobian(lambda at: exact_votes(network.levels(at), SIGMA)[0, 0], x)
    at, method = x + 0.05 * way / way.norm(), voting(network, 4)
    report, noise = mg.ReportOptions(compared="computed"), mg.FreshNoise(300, 0.1)
    fails = 0
    for _ in range(24):
        found = mg.certify(method, x, 0, 0.05, noise=noise, report=report)[0]
        fails += bool(found.violations(mg.certify(method, at, 0, 0.0, noise=noise)[0].map))
    assert found.alpha == pytest.approx(0.2)
    assert fails / 24 <= 0.2
    ideal = mg.certify(method, x, 0, 0.05, noise=noise)[0]
    assert float((found.values.upper - found.values.lower).sum()) > float(
        (ideal.values.upper - ideal.values.lower).sum()
    )


# ---- other lengths, other units, and the published special case ----


def test_less_is_promised_of_longer_changes():
    network = exponentials([1] * 8)
    method = voting(network, 8, prior=mg.L1(), sparsity=0.4)
    x = 0.5 * torch.randn(1, 8, dtype=torch.float64)
    found = mg.certify(method, x, 0, 0.001, noise=mg.FreshNoise(20_000, seed=2), report=mg.ReportOptions(k=3))[0]
    every = [found.at(epsilon) for epsilon in (0.0, 0.05, 0.1, 0.2, 0.5, 5.0)]
    for one, other in pairwise(every):
        assert one.topk.overlap >= other.topk.overlap >= int(other.topk.members.sum())
        assert one.support.survivors >= other.support.survivors
        assert one.support.entrants <= other.support.entrants
        assert one.change.cosine >= other.change.cosine
        assert one.change.budget <= other.change.budget
        assert bool((other.values.lower <= one.values.lower).all() and (one.values.upper <= other.values.upper).all())
    assert not every[0].vacuous
    assert every[-1].vacuous
    assert "VACUOUS" in str(every[-1])
    assert every[0].record()["survivors"] == every[0].support.survivors
    assert every[0].constants.rho is None


def test_pixels_are_means_over_channels_with_limits_of_their_own():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Softplus(), nn.Linear(16, 3)).double().eval()
    x = torch.rand(1, 3, 4, 4, dtype=torch.float64)
    method = mg.MoreauGrad(network, 0, statistic="votes", smoothing=NOISE)
    noise = mg.FreshNoise(2000, seed=1)
    pixels, entries = (
        mg.certify(method, x, 0, 0.01, noise=noise, report=mg.ReportOptions(units=units))[0]
        for units in ("pixels", "entries")
    )
    sizes = pixels.topk.sizes(pixels.map[None])[0]
    assert sizes.equal(pixels.map.mean(0).flatten())
    assert (pixels.topk.total, entries.topk.total) == (16, 48)
    assert bool((pixels.values.lower <= entries.values.lower).all())  # a little of alpha went to the means
    ranks = mg.certify(mg.SparsifiedSmoothGrad(network, "basic", smoothing=NOISE), x, 0, 0.01, noise=noise)[0]
    assert float((ranks.map - pixels.map).abs().max()) < 0.1  # the same votes, on other noise
    assert (ranks.topk.units, ranks.topk.k) == (pixels.topk.units, pixels.topk.k)


def test_batches_and_label_maps_of_each_image():
    weights = torch.rand(16, dtype=torch.float64)
    labels = torch.stack([torch.arange(16) // 4, torch.arange(16) % 4]).view(2, 1, 4, 4)
    method = mg.GroupSparseMoreauGrad(
        Linear(weights), 0, eta=0.5, groups=labels, statistic="votes", tau=0.3, smoothing=NOISE
    )
    found = mg.certify(method, torch.zeros(2, 1, 4, 4, dtype=torch.float64), [0, 1], 0.01, noise=mg.FreshNoise(300))
    for each, own in zip(found, labels, strict=True):
        norms = torch.zeros(4, dtype=torch.float64).index_add(0, own.flatten(), weights.square())
        assert each.topk.units == "groups"
        assert each.map.flatten().gt(0).equal(own.flatten() == norms.argmax())
        assert each.support.survivors == 1
        assert each.violations(each.method.attribute(torch.zeros(1, 1, 4, 4, dtype=torch.float64), 0)[0]) == ()


# ---- refusals ----


def refusal(method, x=None, **options):
    x = torch.rand(1, 12, dtype=torch.float64) if x is None else x
    with pytest.raises((ValueError, TypeError)) as caught:
        mg.certify(method, x, 0, **options)
    return str(caught.value)


def test_too_few_samples_are_refused_before_the_network_runs_and_as_many_as_named_do():
    method = mg.MoreauGrad(refuses_gradients, 0, statistic="votes", smoothing=NOISE, tau=0.25)
    words = refusal(method, epsilon=0.1, noise=mg.FreshNoise(10))
    needed = theory.needed_samples(12, 0.1 / SIGMA, 0.001)
    assert str(needed) in words
    clear = mg.MoreauGrad(Linear(torch.eye(12)[0].double()), 0, statistic="votes", smoothing=NOISE, tau=0.1)
    x = torch.zeros(1, 12, dtype=torch.float64)
    found = mg.certify(clear, x, 0, 0.1, noise=mg.FreshNoise(needed))[0]
    assert (found.topk.overlap, found.vacuous) == (1, False)


def test_a_relative_noise_level_is_refused_with_the_sigma_of_this_image():
    x = torch.linspace(-1, 3, 12, dtype=torch.float64)[None]
    for method in (
        mg.MoreauGrad(refuses_gradients, 0, statistic="votes", noise_level=0.1),
        mg.SmoothGrad(refuses_gradients, statistic="votes", noise_level=0.1),
    ):
        assert "sigma=0.4)" in refusal(method, x)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rho": 1.0, "statistic": "votes"}, "take rho=0"),
        ({"rho": 0, "statistic": "rms"}, "'votes'"),
        ({"rho": 0}, "statistic='votes'"),
        ({"rho": 0, "statistic": "votes", "smoothing": mg.Smoothing(sigma=SIGMA, fixed=True)}, "fresh noise"),
        ({"rho": 0, "statistic": "votes", "score": lambda output: output[:, 0]}, "class scores"),
    ],
)
def test_what_has_no_certificate_is_refused(options, words):
    assert words in refusal(mg.MoreauGrad(refuses_gradients, **{"smoothing": NOISE} | options))


def test_constants_and_other_priors_are_refused():
    method = mg.MoreauGrad(refuses_gradients, 0, statistic="votes", smoothing=NOISE)
    assert "grid must be left out" in refusal(method, problem=mg.CertifiedProblem(grid=2))
    assert "convex" in refusal(method, assume=mg.Assumptions(convex=True))
    assert "lower epsilon" in refusal(method, epsilon=30.0)

    class Simplex(mg.L1):
        convex = True

    assert "Simplex" in refusal(
        mg.MoreauGrad(method.forward_func, 0, statistic="votes", smoothing=NOISE, prior=Simplex(), eta=0.1)
    )
    broken = Linear(torch.full((12,), torch.nan, dtype=torch.float64))
    assert "finite" in refusal(mg.MoreauGrad(broken, 0, statistic="votes", smoothing=NOISE))
