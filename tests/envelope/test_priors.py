"""Laws that hold for every prior, its second derivatives included, and for the groups they are made of."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import soft, soft_groups
from outside.elastic_net import ElasticNet

import moreaugrad as mg
from moreaugrad.envelope.priors import L1, PRIORS, Group, Zero, find_level, take_prior

LABELS = torch.tensor([0, 1, 0, 2, 1, 2])
EXAMPLES = {"zero": Zero(), "l1": L1(), "group": Group(labels=LABELS[None], counts=(3,)), "elastic_net": ElasticNet()}
every_prior = pytest.mark.parametrize("prior", EXAMPLES.values(), ids=EXAMPLES.keys())
entries = st.lists(st.floats(-10, 10), min_size=12, max_size=12)
batches = entries.map(lambda numbers: torch.tensor(numbers, dtype=torch.float64).view(2, 6))
amounts = st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)).map(lambda a: torch.tensor(a, dtype=torch.float64))


def test_every_prior_has_an_example():
    own = {
        name for name, entry in PRIORS.items() if entry.path.startswith("moreaugrad.")
    }  # other tests register theirs
    assert own <= set(EXAMPLES)


@every_prior
@given(at=batches, other=batches, amount=amounts)
def test_prox_minimises_its_own_objective(prior, at, other, amount):
    def objective(delta):
        return amount * prior.value(delta) + (delta - at).square().flatten(1).sum(1) / 2

    assert (objective(prior.prox(at, amount)) <= objective(other) + 1e-9).all()


@every_prior
@given(a=batches, b=batches, amount=amounts)
def test_prox_is_firmly_nonexpansive(prior, a, b, amount):
    moved = prior.prox(a, amount) - prior.prox(b, amount)
    assert (moved.square().sum(1) <= (moved * (a - b)).sum(1) + 1e-9).all()


@every_prior
@given(a=batches, b=batches, share=st.floats(0, 1))
def test_value_is_convex_and_zero_at_zero(prior, a, b, share):
    between = share * prior.value(a) + (1 - share) * prior.value(b)
    assert (prior.value(share * a + (1 - share) * b) <= between + 1e-9).all()
    assert prior.value(torch.zeros_like(a)).tolist() == [0, 0]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "zero"])
@given(u=batches, keep=st.sampled_from([0.2, 1 / 3, 0.5, 2 / 3, 1.0]))
def test_level_keeps_the_asked_share_of_units(name, u, keep):
    prior = EXAMPLES[name]
    units = prior.units(u)
    kept = prior.units(prior.prox(u, find_level(prior, u, keep))) > 0
    asked = max(1, round(keep * units.shape[1]))
    for row, sizes in zip(kept, units, strict=True):
        clear = sizes.sort(descending=True).values
        if asked == len(sizes):
            assert row.sum() == (sizes > 0).sum()
        elif clear[asked - 1] > clear[asked] * (1 + 1e-9) + 1e-12:
            assert row.sum() == asked
        else:
            assert row.sum() <= asked


class Unlevelled:
    """L1 without its own level, so that it is found by bisection."""

    value, prox, units = L1.value, L1.prox, L1.units


@given(u=batches, keep=st.sampled_from([0.2, 0.5, 0.8]))
def test_bisection_finds_the_same_map_as_the_quantile(u, keep):
    own, found = (each.prox(u, find_level(each, u, keep)) for each in (L1(), Unlevelled()))
    torch.testing.assert_close(own, found, rtol=1e-9, atol=1e-9)


def test_a_prior_that_drops_nothing_cannot_be_given_a_sparsity():
    class Ridge:
        def value(self, delta):
            return delta.square().sum(1) / 2

        def prox(self, delta, amount):
            return delta / (1 + amount[:, None])

        def units(self, delta):
            return delta.abs()

    with pytest.raises(ValueError, match=r"got Ridge, whose prox keeps them at every weight; give eta= instead"):
        find_level(Ridge(), torch.randn(2, 6), 0.5)


U = torch.tensor([[3.0, -0.2, 1.5, 0.1, -2.0, 0.3], [-0.4, 2.5, 0.2, -3.0, 0.6, 1.1]], dtype=torch.float64)
AMOUNT = torch.tensor([0.5, 1.3], dtype=torch.float64)


def check_second_derivatives(prior, u=U, amount=AMOUNT):
    """`active`, `hessian_product` and `stiffness` against the derivative of the prox, by the inverse function theorem.

    At delta = prox(u): u = delta + amount * value'(delta) on the active entries A, so d delta/du on A is the inverse of
    I + amount * value''; entries outside A stay zero.
    """
    delta = prior.prox(u, amount)
    size = u.shape[1]
    for row in range(len(u)):
        alone = take_prior(prior, torch.tensor([row]), u)
        jacobian = torch.autograd.functional.jacobian(
            lambda v, p=alone, a=amount[row : row + 1]: p.prox(v[None], a)[0], u[row]
        )
        active = prior.active(delta)[row]
        assert torch.equal(active, jacobian.abs().sum(1) > 0)
        products = [prior.hessian_product(delta, unit.expand_as(u))[row] for unit in torch.eye(size).to(u)]
        hessian = torch.stack(products, 1)[active][:, active]
        torch.testing.assert_close(hessian, hessian.T)
        identity = torch.eye(int(active.sum())).to(u)
        inverse = jacobian[active][:, active] @ (identity + amount[row] * hessian)
        torch.testing.assert_close(inverse, identity, rtol=1e-9, atol=1e-12)
        stiffness = prior.stiffness(delta)[row]
        assert (stiffness[~active] == 0).all()
        values = torch.linalg.eigvalsh(hessian)
        assert float(stiffness.max()) == pytest.approx(float(values.max()), rel=1e-9, abs=1e-12)
        assert torch.linalg.eigvalsh(torch.diag(stiffness[active]) - hessian).min() >= -1e-12


@every_prior
def test_second_derivatives_are_those_of_the_prox(prior):
    check_second_derivatives(prior)


@pytest.mark.parametrize("name", ["active", "hessian_product", "stiffness"])
@every_prior
def test_a_wrong_second_derivative_is_found(prior, name):
    """The law above can fail: each function spoiled in turn."""
    wrong = {
        "active": lambda delta: ~type(prior).active(prior, delta),
        "hessian_product": lambda delta, q: -1000 * q,
        "stiffness": lambda delta: torch.full_like(delta, float("nan")),
    }

    class Spoiled:
        def __getattr__(self, asked):
            return wrong[name] if asked == name else getattr(prior, asked)

        def take(self, which):
            return self

    with pytest.raises(AssertionError):
        check_second_derivatives(Spoiled())


@every_prior
def test_the_value_has_the_same_second_derivative(prior):
    x, q = torch.randn(2, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).unbind()
    leaf = x.clone().requires_grad_()
    value = prior.value(leaf).sum()
    wanted = None
    if value.requires_grad:
        (grad,) = torch.autograd.grad(value, leaf, create_graph=True)
        wanted = torch.autograd.grad(grad, leaf, q, allow_unused=True)[0] if grad.requires_grad else None
    torch.testing.assert_close(prior.hessian_product(x, q), torch.zeros_like(x) if wanted is None else wanted)


@every_prior
def test_images_do_not_interact(prior):
    whole = prior.prox(U, AMOUNT)
    for row in range(2):
        some = torch.tensor([row])
        alone = take_prior(prior, some, U)
        assert torch.equal(alone.prox(U[some], AMOUNT[some]), whole[some])
        assert torch.equal(alone.value(U[some]), prior.value(U)[some])


@given(u=batches, amount=amounts)
def test_thresholds_agree_with_their_definitions(u, amount):
    for row in range(2):
        one, by = u[row : row + 1], amount[row : row + 1]
        torch.testing.assert_close(EXAMPLES["l1"].prox(one, by), soft(one, float(by)))
        torch.testing.assert_close(EXAMPLES["group"].prox(one, by), soft_groups(one, LABELS, float(by)))


def test_groups_of_one_entry_are_l1():
    u = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    singles = mg.Group(torch.arange(32)).for_batch(u)
    amount = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(singles.prox(u, amount), L1().prox(u, amount))


def test_grid_pools_channels_and_allows_uneven_edges():
    labels = mg.Group(3).for_batch(torch.zeros(1, 2, 7, 8)).labels.view(2, 7, 8)
    assert torch.equal(labels[0], labels[1])
    assert labels.unique().tolist() == list(range(9))
    rows = [int((labels[0, :, 0] == k).sum()) for k in labels[0, :, 0].unique()]
    assert sorted(rows) == [2, 2, 3]
    assert (labels[0, 0] <= labels[0, 0].roll(-1)).sum() >= 7  # blocks are runs, left to right


def test_grid_of_16_on_224_is_blocks_of_14():
    labels = mg.Group(16).for_batch(torch.zeros(1, 3, 224, 224)).labels.view(3, 224, 224)
    assert labels.unique(return_counts=True)[1].tolist() == [14 * 14 * 3] * 256
    assert torch.equal(labels[0, 14:28, 28:42], torch.full((14, 14), 18))


def test_grid_finer_than_the_image_gives_one_group_per_pixel():
    prior = mg.Group(16).for_batch(torch.zeros(1, 3, 5, 5))
    assert prior.counts == (25,)


def test_channels_and_label_maps():
    x = torch.zeros(2, 3, 4, 4)
    assert mg.Group("channels").for_batch(x).labels.view(3, 16).unique(dim=1).flatten().tolist() == [0, 1, 2]
    plane = torch.arange(16).view(4, 4) // 8
    assert torch.equal(mg.Group(plane).for_batch(x).labels.view(3, 4, 4)[2], plane)
    each = torch.stack([plane, plane.T])
    per_image = mg.Group(each).for_batch(x).labels.view(2, 3, 4, 4)
    assert torch.equal(per_image[1, 0], plane.T)


def test_superpixels_follow_the_image():
    x = torch.zeros(1, 3, 32, 32)
    x[:, :, :, 16:] = 1
    labels = mg.Group("superpixels").for_batch(x).labels.view(3, 32, 32)[0]
    left, right = set(labels[:, :16].unique().tolist()), set(labels[:, 16:].unique().tolist())
    assert not left & right


def test_group_norms_of_large_groups_are_exact():
    u = torch.full((1, 100_000), 1e-3)
    norms = Group(labels=torch.zeros(1, 100_000, dtype=torch.long), counts=(1,)).units(u)
    assert float(norms) == pytest.approx(1e-3 * 100_000**0.5, rel=1e-6)
