"""The group-sparse attack: every update pinned by closed forms, the search for c, laws, and bad input."""

import itertools

import pytest
import torch
from oracles import soft_groups
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.base import AttackedModel
from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.structured import POLISH, AdmmState, Structured, WeightSearch, margins, next_weight, support
from moreaugrad.types import ignore_progress

LABELS = torch.arange(12) // 3
A = torch.randn(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
A = A * torch.tensor([6.0, 1.0, 3.0, 0.5], dtype=torch.float64)[LABELS]
WIDE = torch.full((3, 12), 50.0, dtype=torch.float64)
FOUR = mg.Group(LABELS).for_batch(A)


def solve(slope, steps, like=A, low=-WIDE, high=WIDE, support=None, **options):
    attack = Structured(linear(weights()), 1.0, **options)
    extra = {"low": low, "high": high} | ({"groups": FOUR} if support is None else {"support": support})
    step = attack.group_step if support is None else attack.support_step
    state = AdmmState.start(torch.zeros_like(like), 3 if support is None else 1)
    for k in range(steps):
        state = step(state, slope(state.z), k, **extra)
    return state


@pytest.mark.parametrize("official", [False, True])
@pytest.mark.parametrize(("gamma", "tau", "rho", "alpha"), [(2, 3, 15, 5), (0.7, 1.5, 4, 1), (2, 0, 15, 5)])
def test_linear_loss_has_its_closed_form(official, gamma, tau, rho, alpha):
    """min a.z + gamma |z|^2 + tau sum |z_g| is -GST_tau(a) / (2 gamma), or half as much with the doubled block."""
    found = solve(lambda z: A, 1500, gamma=gamma, tau=tau, rho=rho, alpha=alpha, official=official)
    wanted = -soft_groups(A, LABELS, tau) / (2 * gamma) / (2 if official else 1)
    for each in (found.z, *found.copies):
        torch.testing.assert_close(each, wanted, rtol=0, atol=1e-10)
    if tau:
        still = wanted == 0
        assert still.any()
        assert (found.copies[-1][still] == 0).all()  # exactly, not nearly
    else:
        assert (found.copies[-1] != 0).all()


def test_linear_loss_in_a_narrow_box():
    """Without groups (tau = 0) the solution is clipped entry by entry."""
    found = solve(lambda z: A, 1500, low=-0.1 * WIDE / 50, high=0.3 * WIDE / 50, tau=0.0)
    torch.testing.assert_close(found.copies[1], (-A / 4).clamp(-0.1, 0.3), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.copies[-1], found.copies[1], rtol=0, atol=1e-9)


def test_copies_meet_on_a_convex_loss_at_its_minimum():
    """log(1 + exp(m.z + 1)), group penalty and box: optimality is checked group by group, from the definition."""
    m, box = A[:1] / 2, 0.4 * WIDE[:1] / 50

    def slope(z):
        return torch.sigmoid((m * z).sum(1, keepdim=True) + 1) * m * 8

    gaps = []
    for steps in (10, 40, 1000):
        found = solve(slope, steps, m, low=-box, high=box)
        gaps.append(max(float((found.z - each).norm()) for each in found.copies))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-10
    z = found.copies[-1]
    total = (slope(z) + 2 * 2.0 * z)[0]
    assert 0 < int((z.abs() > 0.4 - 1e-12).sum()) < int((z != 0).sum())  # some entries at the box, some inside
    for group in range(4):
        member = group == LABELS
        if (z[0, member] == 0).all():
            assert total[member].norm() <= 3.0 + 1e-9
        else:
            free = member & (z[0].abs() < 0.4 - 1e-9)
            pull = total + 3.0 * z[0] / z[0, member].norm()
            assert (pull[free].abs() < 1e-8).all()
            at_the_box = member & ~free
            assert (pull[at_the_box] * z[0, at_the_box] <= 0).all()  # the loss still pushes outwards


def test_refinement_has_its_closed_form():
    """min a.z + gamma |z|^2 on a support: -a / (2 gamma) there, clipped; zero elsewhere."""
    chosen = (LABELS % 2 == 0).double().expand(3, 12)
    found = solve(lambda z: A, 1500, support=chosen, gamma=0.5 * POLISH)
    torch.testing.assert_close(found.copies[-1], -A * chosen, rtol=0, atol=1e-9)
    clipped = solve(lambda z: A, 1500, low=-WIDE / 50, high=WIDE / 50, support=chosen, gamma=0.5 * POLISH)
    torch.testing.assert_close(clipped.copies[-1], (-A).clamp(-1, 1) * chosen, rtol=0, atol=1e-9)


def test_support_leaves_out_zeros_and_the_smallest():
    change = torch.zeros(3, 200, dtype=torch.float64)
    change[0, :100] = torch.arange(1, 101) * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(50)
    change[1, 7] = -0.5
    found = support(change)
    assert torch.equal(found[0].nonzero().flatten(), torch.arange(3, 100))  # 1, 2 and 3 are below 3.97
    assert torch.equal(found[1].nonzero().flatten(), torch.tensor([7]))
    assert not found[2].any()


def test_search_for_c_grows_then_halves_and_each_image_has_its_own():
    inf, needed = torch.inf, torch.tensor([0.3, 20.0, 1e9], dtype=torch.float64)
    low, high, c = torch.zeros(3).double(), torch.full((3,), inf).double(), torch.ones(3).double()
    tried = [c]
    for _ in range(40):
        low, high, c = next_weight(low, high, c, c >= needed)
        tried.append(c)
    assert [float(each[0]) for each in tried[:3]] == [1.0, 0.5, 0.25]
    assert [float(each[1]) for each in tried[:5]] == [1.0, 5.0, 25.0, 15.0, 20.0]
    torch.testing.assert_close(high, needed, rtol=1e-6, atol=0)


def test_the_shortest_success_is_kept_and_a_success_is_not_forgotten():
    asked = []

    def model(x):  # leaves class 0 from x = 1 on
        asked.append(len(x))
        return torch.stack([1 - x[:, 0], x[:, 0] - 1], 1)

    ball = Ball(torch.zeros(1, 2, dtype=torch.float64), 10.0, "linf")
    zero = torch.tensor([0])
    best = WeightSearch(ball, AttackedModel(model, zero, zero), 0.0, 1, ignore_progress)
    known = torch.tensor([False])
    states = []
    for size in (0.5, 2.0, 3.0, 0.7, 1.5):
        known = best.update(torch.tensor([[size, 0.0]], dtype=torch.float64), known)
        states.append((bool(known), float(best.length), len(asked)))
    # the third is longer than what is known to succeed, so the model is not asked; the fourth is asked about, and fails
    assert states == [(False, torch.inf, 1), (True, 2.0, 2), (True, 2.0, 2), (True, 2.0, 3), (True, 1.5, 4)]
    assert best.at.tolist() == [[1.5, 0.0]]


def weights(scale=(0.8, 4.0, 1.2, 0.5), seed=1):
    w = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return w / w.view(4, 3).norm(dim=1)[LABELS] * torch.tensor(scale, dtype=torch.float64)[LABELS]


def linear(w, bias=1.0):
    def model(x):
        value = x @ w + bias
        return torch.stack([value, -value], 1)

    return model


X = torch.zeros(1, 12, dtype=torch.float64)


@pytest.mark.parametrize("official", [False, True])
def test_linear_model_is_attacked_in_its_heaviest_group(official):
    """The least change of w.z <= -1 that touches one group lies along w there, and has length 1/|w_g|."""
    w = weights()
    attack = Structured(linear(w), 5.0, groups=LABELS, official=official, rounds=4, iterations=100, box=None)
    found = attack.perturb(X)
    assert found.success.all()
    assert torch.equal(found.x[0].nonzero().flatten(), torch.tensor([3, 4, 5]))
    assert float(found.l2) == pytest.approx(1 / 4, rel=0.02)
    assert float(found.l2) >= 1 / 4
    torch.testing.assert_close(found.x[0, 3:6] / found.x[0, 3:6].norm(), -w[3:6] / 4, rtol=0, atol=1e-2)
    torch.testing.assert_close(found.objective, found.l2)


def test_the_best_group_is_the_heaviest_among_all_supports():
    """A second derivation: the penalty of the cheapest crossing within every set of groups, one by one."""
    w = weights()
    best = min(
        (chosen for n in range(1, 5) for chosen in itertools.combinations(range(4), n)),
        key=lambda chosen: cheapest(w, torch.isin(LABELS, torch.tensor(chosen))),
    )
    assert best == (1,)


def cheapest(w, member):
    """min gamma |z|^2 + tau sum |z_g| with w.z = -1 on a set of groups, by shrinking the price of the crossing."""
    low, high = 0.0, 1e3
    for _ in range(100):
        price = (low + high) / 2
        z = -soft_groups((price * w * member)[None], LABELS, 3.0) / 4
        low, high = (price, high) if float(-(z @ w)) < 1 else (low, price)
    return float(2 * z.square().sum() + 3 * z.view(4, 3).norm(dim=1).sum())


def network(seed=0, classes=4):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 24), nn.SiLU(), nn.Linear(24, classes)).double().eval()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).double() / 3
    return net


def images(n=4, seed=2):
    return torch.rand(n, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


QUICK = {"groups": 2, "rounds": 2, "iterations": 40, "c": 3.0, "box": (0.0, 1.0)}


def alive(change, groups=2):
    return (mg.Group(groups).for_batch(change).units(change) > 0).sum(1)


def test_groups_die_as_tau_grows():
    model, x = network(), images(4)
    counts = []
    for tau in (0.0, 1.0, 5.0):
        found = Structured(model, 1.0, tau=tau, groups=4, c=5.0, rounds=2, iterations=60, box=None).perturb(x)
        assert found.success.all()
        counts.append(float(alive(found.x - x, 4).double().mean()))
        assert set(alive(found.x - x, 4).tolist()) <= set(range(1, 17))
    assert counts[0] == 16  # dense
    assert all(more > less for more, less in itertools.pairwise(counts))


def test_off_support_nothing_moves_and_refinement_only_shortens():
    model, x = network(), images(3)
    rough, fine = (
        Structured(model, 0.5, refine=refine, **{**QUICK, "groups": 4}).perturb(x) for refine in (False, True)
    )
    assert torch.equal(rough.success, fine.success)
    assert rough.success.all()
    dead = (rough.x == x) & rough.success.view(-1, 1, 1, 1)
    assert dead.any()
    assert (fine.x == x)[dead].all()
    assert (fine.l2 <= rough.l2).all()
    assert (fine.l2 < rough.l2).any()
    assert torch.equal(rough.trace, fine.trace[: len(rough.trace)])
    assert (rough.gradients == 80).all()
    assert (fine.gradients == 80 + 32).all()


@pytest.mark.parametrize("goal", [None, 2, [0, 1, 2, 3]])
@pytest.mark.parametrize("confidence", [0.0, 0.3])
def test_ball_box_goal_and_confidence_hold(goal, confidence):
    model, x = network(), images()
    attack = Structured(model, 0.4, goal=goal, confidence=confidence, **QUICK)
    found = attack.perturb(x)
    assert (found.linf <= 0.4 * (1 + 1e-12)).all()
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    logits = model(found.x)
    won = found.success
    assert won.any()
    named = found.target if goal is None else torch.as_tensor(goal).expand(4)
    margin = margins(logits, named) * (-1 if goal is None else 1)
    assert (margin[won] >= confidence).all()
    assert torch.equal(won, (logits.argmax(1) == named) == (goal is not None))
    assert torch.equal(found.x[~won], x[~won])
    assert torch.equal(found.objective[won], found.l2[won])
    assert (found.objective[~won] == torch.inf).all()
    assert (found.trace[0] == torch.inf).all()
    assert (found.trace[1:] <= found.trace[:-1]).all()
    assert torch.equal(found.trace[-1], found.objective)
    assert len(found.trace) == 1 + 2 * 2


def test_the_margin_and_its_gradient():
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]], dtype=torch.float64)
    assert margins(logits, torch.tensor([0, 0])).tolist() == [1.0, -5.0]
    model, x = network(), images(3)
    attack = Structured(model, 0.4, goal=[1, 2, 3])
    attacked = attack.make_model(x, model(x).argmax(1), model(x))
    value, grad = WeightSearch(Ball(x, 0.4, "linf"), attacked, 0.0, 1, ignore_progress).margin.value_and_grad(x)
    leaf = x.clone().requires_grad_()
    for row, goal in enumerate([1, 2, 3]):
        wanted = model(leaf)[row]
        others = torch.cat([wanted[:goal], wanted[goal + 1 :]])
        (slope,) = torch.autograd.grad(wanted[goal] - others.max(), leaf)
        torch.testing.assert_close(grad[row], slope[row], rtol=0, atol=1e-12)
        torch.testing.assert_close(value[row], (wanted[goal] - others.max()).detach())


def test_out_of_reach_leaves_the_image():
    x = images(2)
    found = Structured(network(), 1e-6, **QUICK).perturb(x)
    assert not found.success.any()
    assert torch.equal(found.x, x)
    assert found.kept.all()
    assert (found.gradients == 80).all()  # there is nothing to refine
    assert len(found.trace) == 5


def test_what_is_wrong_already_needs_no_change():
    model, x = network(), images(2)
    found = Structured(model, 0.4, **{**QUICK, "iterations": 10}).perturb(x, (model(x).argmax(1) + 1) % 4)
    assert found.success.all()
    assert found.kept.all()
    assert torch.equal(found.x, x)
    assert (found.objective == 0).all()


def test_the_published_budget_and_the_callback():
    heard = []
    attack = Structured(network(), 0.4, groups=2, rounds=3, iterations=10, growing=True, refine=False, box=None)
    found = attack.perturb(images(1), callback=lambda *args: heard.append(args[:2]))
    assert (found.gradients == 10 + 20 + 30).all()
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_an_image_alone_gets_what_it_gets_in_a_batch():
    """Also with groups of its own, and beside an image that cannot be attacked."""
    x = images(4)
    labels = torch.stack([torch.arange(16).view(4, 4) // size for size in (2, 4, 8, 16)])
    model, options = network(), {**QUICK, "iterations": 25}
    batch = Structured(model, 0.25, **{**options, "groups": labels}).perturb(x)
    assert batch.success.any()
    for row in range(4):
        alone = Structured(model, 0.25, **{**options, "groups": labels[row : row + 1]}).perturb(x[row : row + 1])
        for name in ("x", "success", "kept", "objective", "l2", "linf", "gradients"):
            assert torch.equal(getattr(alone, name)[0], getattr(batch, name)[row]), name
        assert torch.equal(alone.trace[:, 0], batch.trace[:, row])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"norm": "l2"}, "norm must be one of \\['linf'\\], got 'l2'"),
        *[({name: 0.0}, f"{name} must be a positive") for name in ("gamma", "c", "rho", "alpha")],
        *[({name: -0.1}, f"{name} must be a finite number >= 0") for name in ("tau", "confidence")],
        *[({name: 0}, f"{name} must be at least 1") for name in ("rounds", "iterations")],
    ],
)
def test_bad_options(wrong, words):
    with pytest.raises(ValueError, match=words):
        Structured(network(), **{"epsilon": 0.1, **wrong})


@pytest.mark.parametrize(
    ("groups", "shape"),
    [
        (torch.zeros(5, 5, dtype=torch.long), (3, 4, 4)),
        (torch.full((4, 4), -1), (3, 4, 4)),
        (0, (3, 4, 4)),
        (4, (12,)),
        ("stripes", (3, 4, 4)),
    ],
)
def test_groups_that_do_not_fit_are_refused_before_the_model_is_asked(groups, shape):
    def never(x):
        raise AssertionError("the model was called")

    with pytest.raises(ValueError, match="groups"):
        Structured(never, 0.1, groups=groups).perturb(torch.rand(2, *shape))


def test_other_bad_input():
    with pytest.raises(TypeError, match="integers"):
        Structured(network(), 0.1, groups=torch.zeros(4, 4)).perturb(images(1))
    with pytest.raises(ValueError, match=r"goal must lie in 0\.\.3"):
        Structured(network(), 0.1, groups=2, goal=4).perturb(images(1))
    with pytest.raises(TypeError, match="official must be"):
        Structured(network(), 0.1, official="yes")
