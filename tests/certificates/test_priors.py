"""Certificates rest on the method's own prior: the certified map is the method's map, or the method is refused."""

from dataclasses import dataclass

import pytest
import torch
from flat_certify import certify
from torch import nn

import moreaugrad as mg
from moreaugrad.envelope.priors import L1


class ElasticNet(L1):
    """|delta|_1 + |delta|^2: shrinks what L1 keeps."""

    def value(self, delta):
        return super().value(delta) + delta.square().flatten(1).sum(1)

    def prox(self, delta, amount):
        return super().prox(delta, amount) / (1 + 2 * amount.view(-1, *[1] * (delta.ndim - 1)))


class ConvexElasticNet(ElasticNet):
    convex = True


class Ball(ConvexElasticNet):
    """The indicator of |delta| <= 0.02: acts whatever its weight is."""

    def value(self, delta):
        return delta.new_zeros(len(delta))

    def prox(self, delta, amount):
        length = delta.flatten(1).norm(dim=1).view(-1, *[1] * (delta.ndim - 1))
        return delta * (0.02 / length).clamp_max(1)


def with_prior(made, base=mg.MoreauGrad):
    @dataclass(frozen=True, eq=False)
    class Other(base):
        def make_prior(self, call):
            return made

    return Other


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).double().eval()


def points(count=1):
    return torch.randn(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


OPTIONS = {"rho": 0.2, "smoothing": None}


def with_option(prior, **options):
    return mg.MoreauGrad(network(), prior=prior, **options)


def by_subclass(prior, **options):
    return with_prior(prior)(network(), prior=prior, **options)


def registered(prior, **options):
    name = f"{type(prior).__name__}_of_a_test"
    if name not in mg.PRIORS:
        mg.register("prior", name)(type(prior))
    return mg.MoreauGrad(network(), prior=name, **options)


WAYS = [with_option, by_subclass, registered]


@pytest.mark.parametrize("make", WAYS)
def test_a_prior_that_is_not_known_to_be_convex_is_refused(make):
    method = make(ElasticNet(), eta=0.05, **OPTIONS)
    with pytest.raises(ValueError, match=r"the prior must be convex to be certified, got ElasticNet.*`convex = True`"):
        certify(method, points(), 0, epsilon=0.01, curvature="exact")


@pytest.mark.parametrize(("prior", "make"), [*((ConvexElasticNet(), way) for way in WAYS), (Ball(), with_option)])
def test_a_convex_prior_is_certified_with_its_own_prox(prior, make):
    method, x = make(prior, eta=0.05, **OPTIONS), points()
    (found,) = certify(method, x, 0, epsilon=0.05, curvature="exact", k=2)
    assert float((found.map - method.attribute(x, 0)[0]).norm()) <= found.accuracy.residual + 1e-12 < 1e-4
    assert not torch.allclose(found.map, mg.SparseMoreauGrad(network(), eta=0.05, **OPTIONS).attribute(x, 0)[0])
    assert found.support is None
    count = 4 if isinstance(prior, Ball) else 24  # of which each solve takes seconds
    way = torch.randn(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    maps = found.method.attribute(x + 0.05 * way / way.norm(dim=1, keepdim=True), 0)
    assert [found.violations(each) for each in maps] == [()] * len(maps)


def test_groups_of_a_prior_are_frozen():
    prior = mg.PRIORS["group"](groups=torch.arange(6) // 2)
    (found,) = certify(with_option(prior, eta=0.05, **OPTIONS), points(), 0, epsilon=0.02, curvature="exact")
    method = mg.GroupSparseMoreauGrad(network(), eta=0.05, groups=torch.arange(6) // 2, **OPTIONS)
    (same,) = certify(method, points(), 0, epsilon=0.02, curvature="exact")
    assert found.record() == same.record()
    torch.testing.assert_close(found.method.attribute(points(), 0), same.method.attribute(points(), 0))


def test_each_image_has_its_own_groups():
    labels = torch.stack([torch.arange(6) // 2, torch.arange(6) // 3])
    method = mg.GroupSparseMoreauGrad(network(), eta=0.05, groups=labels, **OPTIONS)
    both = certify(method, points(2), 0, epsilon=0.02, curvature="exact")
    for found, x, own in zip(both, points(2).split(1), labels, strict=True):
        method = mg.GroupSparseMoreauGrad(network(), eta=0.05, groups=own, **OPTIONS)
        (alone,) = certify(method, x, 0, epsilon=0.02, curvature="exact")
        assert found.record() == alone.record()
        torch.testing.assert_close(found.map, method.attribute(x, 0)[0])


def test_a_prior_that_is_not_that_of_its_base_class_is_used():
    method = with_prior(L1(), mg.GroupSparseMoreauGrad)(network(), eta=0.05, groups=torch.arange(6) // 2, **OPTIONS)
    (found,) = certify(method, points(), 0, epsilon=0.01, curvature="exact")
    (plain,) = certify(mg.SparseMoreauGrad(network(), eta=0.05, **OPTIONS), points(), 0, 0.01, curvature="exact")
    torch.testing.assert_close(found.map, plain.map)
    assert found.topk.units == plain.topk.units == "entries"


@pytest.mark.parametrize("base", [mg.MoreauGrad, mg.SparsifiedSmoothGrad])
def test_a_subclass_that_computes_another_map_is_refused(base):
    @dataclass(frozen=True, eq=False)
    class Doubled(base):
        def compute(self, call):
            return super().compute(call)

    method = Doubled(network(), smoothing=mg.Smoothing(sigma=0.5))
    with pytest.raises(TypeError, match="got Doubled, which overrides compute"):
        certify(method, points(), 0, epsilon=0.01)
