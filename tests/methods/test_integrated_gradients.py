"""Integrated gradients: closed forms, completeness, Captum's rules, and the same map in any batch."""

import pytest
import torch
from captum.attr import IntegratedGradients as Captum
from torch import nn

import moreaugrad as mg
from moreaugrad.methods import base
from moreaugrad.methods.integrated import RULES, IntegratedGradients
from moreaugrad.model.score import ClassScore


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def network(activation=nn.Softplus, dtype=torch.float64):
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), activation(), nn.Flatten(), nn.Linear(6 * 5 * 5, 5)
    )
    for index, parameter in enumerate(layers.parameters()):
        parameter.data = random(*parameter.shape, seed=index).float() / 3
    return layers.to(dtype).eval()


X, X0 = random(3, 3, 12, 12, seed=90), random(3, 3, 12, 12, seed=91)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [2, 3, 10, 51])
def test_linear_scores_are_shared_out_exactly(rule, steps):
    a = random(3, 12, 12, seed=5)
    found = IntegratedGradients(lambda v: (v * a).sum((1, 2, 3)) + 7, steps, rule).attribute(X, baselines=X0)
    weight = (steps - 1) / steps if rule == "trapezoid" else 1.0
    torch.testing.assert_close(found, weight * (X - X0) * a, rtol=1e-12, atol=1e-14)


def test_one_step_of_the_right_rule_is_the_gradient_times_the_way():
    found = IntegratedGradients(network(), 1).attribute(X, target=1, baselines=X0)
    torch.testing.assert_close(found, (X - X0) * mg.Gradient(network()).attribute(X, target=1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("steps", [1, 5, 50])
def test_quadratic_scores_have_a_known_map_and_gap(steps):
    a = random(6, 6, seed=2)
    a, x = a + a.T, random(4, 6, seed=3)
    score = lambda v: ((v @ a) * v).sum(1) / 2  # noqa: E731
    found, gap = IntegratedGradients(score, steps).attribute(x, return_convergence_delta=True)
    torch.testing.assert_close(found, (1 + 1 / steps) / 2 * x * (x @ a), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gap, score(x) / steps, rtol=1e-10, atol=1e-12)


def test_the_gap_falls_with_the_steps():
    def gap(steps, rule="right"):
        return IntegratedGradients(network(), steps, rule).explain(X, 1, baselines=X0).residual

    torch.testing.assert_close(gap(100) / gap(400), torch.full((3,), 4.0, dtype=torch.float64), rtol=0.05, atol=0)
    torch.testing.assert_close(gap(100, "middle") / gap(400, "middle"), gap(9).new_full((3,), 16.0), rtol=0.05, atol=0)
    assert (gap(16, "gausslegendre").abs() < 1e-6).all()


@pytest.fixture
def _double(monkeypatch):
    """Captum's points have the default precision, and its weights float32 whatever the inputs."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [2, 7, 50])
@pytest.mark.usefixtures("_double")
def test_agrees_with_captum_in_float64(rule, steps):
    net, method = network(nn.ReLU), rule if rule == "gausslegendre" else f"riemann_{rule}"
    arguments = (X, X0, torch.tensor([1, 0, 4]), None, steps, method, 7, True)  # by position
    theirs, delta = Captum(net).attribute(*arguments)
    own = IntegratedGradients(net, steps, rule).attribute(X, target=[1, 0, 4], baselines=X0)
    ours, gap = IntegratedGradients(net).attribute(*arguments)
    for found in (ours, own):
        torch.testing.assert_close(found, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gap, delta, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("_double")
def test_the_averaged_gradient_alone():
    net = network()
    theirs = Captum(net, multiply_by_inputs=False).attribute(X, X0, target=2, n_steps=9, method="gausslegendre")
    ours = IntegratedGradients(net, 9, "gausslegendre", multiply_by_inputs=False)
    torch.testing.assert_close(ours.attribute(X, target=2, baselines=X0), theirs, rtol=1e-9, atol=1e-12)
    whole = IntegratedGradients(net, 9, "gausslegendre").explain(X, 2, baselines=X0)
    torch.testing.assert_close(ours.explain(X, 2, baselines=X0).residual, whole.residual)


@pytest.mark.parametrize("kind", ["prob", "logprob"])
@pytest.mark.usefixtures("_double")
def test_other_scores(kind):
    net = network()
    head = nn.Softmax(1) if kind == "prob" else nn.LogSoftmax(1)
    theirs = Captum(nn.Sequential(net, head)).attribute(X, X0, target=2, n_steps=9, method="gausslegendre")
    found = IntegratedGradients(net, 9, "gausslegendre", score=kind).explain(X, 2, baselines=X0)
    torch.testing.assert_close(found.map, theirs, rtol=1e-9, atol=1e-12)
    rise = (head(net(X)) - head(net(X0)))[:, 2].detach()
    torch.testing.assert_close(found.residual, found.map.sum((1, 2, 3)) - rise, rtol=1e-6, atol=1e-10)


def test_black_is_the_darkest_picture_of_a_model_that_knows_its_normalisation():
    model = mg.load_model("resnet18_softplus")
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    black = IntegratedGradients(model, 3).attribute(x, target=1)
    assert torch.equal(black, IntegratedGradients(model, 3).attribute(x, target=1, baselines=model.box[0].expand_as(x)))
    zero = IntegratedGradients(model, 3, baseline="zero").attribute(x, target=1)
    assert torch.equal(zero, IntegratedGradients(model, 3, baseline=None).attribute(x, target=1))
    assert torch.equal(zero, IntegratedGradients(model, 3).attribute(x, target=1, baselines=0))
    assert not torch.allclose(zero, black)
    plain = IntegratedGradients(network(), 3)
    assert torch.equal(plain.attribute(X, target=1), plain.attribute(X, target=1, baselines=torch.zeros_like(X)))


@pytest.mark.parametrize("steps", [1, 5, 16])
def test_the_same_in_any_batch_and_any_chunks(steps):
    net, target = network(nn.ReLU), [3, 0, 2]
    whole = IntegratedGradients(net, steps).explain(X, target, baselines=X0)
    for rows in (1, 2, 3, 7, 100):
        found = IntegratedGradients(net, steps).explain(X, target, baselines=X0, internal_batch_size=rows)
        torch.testing.assert_close(found.map, whole.map, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.residual, whole.residual, rtol=0, atol=1e-12)
    for row in range(3):
        one = slice(row, row + 1)
        found = IntegratedGradients(net, steps).explain(X[one], target[row], baselines=X0[one])
        torch.testing.assert_close(found.map, whole.map[one], rtol=0, atol=1e-12)
        assert found.gradients == steps


def test_never_more_points_than_a_chunk_are_held(monkeypatch):
    held, evaluate = [], ClassScore.evaluate

    def watched(self, x, owners, chunk):
        held.append(len(x))
        return evaluate(self, x, owners, chunk)

    monkeypatch.setattr(ClassScore, "evaluate", watched)
    IntegratedGradients(network(), 50).attribute(X, target=1, internal_batch_size=8)
    assert max(held) == 8
    assert sum(held) == 150  # and no point twice


def test_blocks_of_images_keep_their_targets_arguments_and_baselines(monkeypatch):
    net = network()
    scale = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    method = IntegratedGradients(lambda v, s: net(v) * s[:, None], 5)
    whole = method.explain(X, [1, 0, 4], scale, baselines=X0)
    monkeypatch.setattr(base, "safe_block", lambda x: 2)
    parts = method.explain(X, [1, 0, 4], scale, baselines=X0)
    torch.testing.assert_close(parts.map, whole.map, rtol=0, atol=1e-12)
    torch.testing.assert_close(parts.residual, whole.residual, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("_double")
def test_tuples_have_baselines_of_their_own():
    a, b = random(2, 4, seed=1), random(2, 2, 3, seed=2)
    score = lambda v, w: v.square().sum(1) * w.sum((1, 2))  # noqa: E731
    ours = IntegratedGradients(score, 9, "gausslegendre").attribute((a, b), baselines=(0.5, torch.ones(2, 3).double()))
    theirs = Captum(score).attribute((a, b), (0.5, torch.ones(2, 2, 3).double()), n_steps=9)
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_derivatives_of_the_map():
    net = nn.Sequential(nn.Linear(5, 6), nn.Softplus(), nn.Linear(6, 2)).double().eval()
    x = random(3, 5, seed=3).requires_grad_()
    for options in ({"rule": "right"}, {"rule": "gausslegendre", "multiply_by_inputs": False, "score": "prob"}):
        method = IntegratedGradients(net, 4, **options)
        assert torch.autograd.gradcheck(
            lambda v, m=method: m.attribute(v, target=1, baselines=0.3, create_graph=True, internal_batch_size=5), (x,)
        )


def test_derivatives_through_attention():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.layer(x).mean(1))

    net, x = Tokens().double().eval().requires_grad_(False), random(1, 3, 4, seed=4).requires_grad_()
    method = IntegratedGradients(net, 3)
    assert torch.autograd.gradcheck(lambda v: method.attribute(v, target=1, create_graph=True), (x,))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rule": "rigth"}, ValueError, "rule must be one of.*Did you mean 'right'"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"steps": 2.0}, TypeError, "whole number"),
        ({"steps": 1, "rule": "trapezoid"}, ValueError, "steps must be at least 2"),
        ({"baseline": "blak"}, ValueError, "baseline must be one of.*Did you mean 'black'"),
        ({"baseline": torch.zeros(3)}, TypeError, "baselines=tensor"),
        ({"multiply_by_inputs": 1}, TypeError, "must be True, False"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        IntegratedGradients(network(), **options)


@pytest.mark.parametrize("given", [torch.zeros(2, 3, 12, 12), torch.zeros(3, 4), torch.full((3, 12, 12), torch.nan)])
def test_bad_baselines(given):
    with pytest.raises(ValueError, match="baselines must"):
        IntegratedGradients(network()).attribute(X, target=1, baselines=given)


@pytest.mark.parametrize("baselines", [0, 0.5, X0, X0[:1]], ids=["int", "float", "batch", "one"])
@pytest.mark.usefixtures("_double")
def test_captums_baselines_as_second_argument(baselines):
    net = network()
    theirs = Captum(net).attribute(X, baselines, 2, n_steps=9)
    ours = IntegratedGradients(net).attribute(X, baselines, 2, n_steps=9, method="gausslegendre")
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_steps_and_rule_of_one_call_leave_the_method_as_it_is():
    method = IntegratedGradients(network(), 5, "middle")
    found = method.attribute(X, X0, 1, n_steps=3, method="riemann_left")
    assert torch.equal(found, IntegratedGradients(network(), 3, "left").attribute(X, X0, 1))
    assert (method.steps, method.rule) == (5, "middle")
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        method.attribute(X, X0, 1, n_steps=0)
    with pytest.raises(ValueError, match="rule must be one of"):
        method.attribute(X, X0, 1, method="simpson")


@pytest.mark.parametrize("given", [1, [1, 0, 4], torch.tensor([1, 0, 4])], ids=["int", "list", "tensor"])
def test_a_class_as_second_argument_is_answered_with_target(given):
    with pytest.raises((TypeError, ValueError), match=r"second argument .* is baselines, as in Captum.*write target="):
        IntegratedGradients(network(), 3).attribute(X, given)


def test_a_whole_number_is_a_baseline_where_the_model_has_one_output():
    method = IntegratedGradients(lambda v: network()(v)[:, 1], 3)
    assert torch.equal(method.attribute(X, 1), method.attribute(X, torch.ones_like(X)))
