"""Constants of layers and networks: exact norms, the law of composition, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from moreaugrad.model.lipschitz_bounds import ISOMETRY, SCORES, LipschitzBounds, lipschitz_bounds, spectral_norm
from moreaugrad.models import load_model

SHAPES = {"images": (4, 6, 6), "rows": (12,)}  # one channel count that PixelShuffle(2) can take


def linear_layers() -> dict[str, tuple[nn.Module, str]]:
    """Every kind of affine layer that is known, with numbers of no special form, and what it is applied to."""
    torch.manual_seed(0)
    norm, plain, rows = nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.BatchNorm1d(12)
    for each in (norm, plain, rows):
        each.running_mean.normal_()
        each.running_var.uniform_(0.1, 3)
    norm.weight.data.normal_(0, 2)
    return {
        "linear": (nn.Linear(12, 7), "rows"),
        "linear without bias": (nn.Linear(12, 20, bias=False), "rows"),
        "1x1": (nn.Conv2d(4, 9, 1), "images"),
        "patches": (nn.Conv2d(4, 5, 2, 2), "images"),
        "patches of another form": (nn.Conv2d(4, 30, (2, 3), (2, 3), padding="valid"), "images"),
        "patches that leave a rest": (nn.Conv2d(4, 5, 4, 4), "images"),
        "mean": (nn.AvgPool2d(2), "images"),
        "mean of another form": (nn.AvgPool2d((3, 2)), "images"),
        "mean with a divisor": (nn.AvgPool2d(2, divisor_override=3), "images"),
        "batch norm": (norm.eval(), "images"),
        "batch norm without weights": (plain.eval(), "images"),
        "batch norm of rows": (rows.eval(), "rows"),
        "dropout": (nn.Dropout(0.5).eval(), "images"),
        "shuffle": (nn.PixelShuffle(2), "images"),
        "unshuffle": (nn.PixelUnshuffle(2), "images"),
        "flatten": (nn.Flatten(), "images"),
        "identity": (nn.Identity(), "images"),
    }


def dense(layer: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """The matrix of an affine layer, column by column."""
    layer = layer.double()
    basis = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        return (layer(basis) - layer(torch.zeros(1, *shape, dtype=torch.float64))).flatten(1).T


@pytest.mark.parametrize("name", linear_layers())
def test_norms_of_affine_layers_are_those_of_their_matrices(name):
    layer, kind = linear_layers()[name]
    found = lipschitz_bounds(layer)
    wanted = float(torch.linalg.svdvals(dense(layer, SHAPES[kind]))[0])
    assert found.lipschitz == pytest.approx(wanted, rel=3e-12)
    assert found.lipschitz >= wanted
    assert found.curvature == 0


ACTIVATIONS = {
    "softplus": nn.Softplus(),
    "steep softplus": nn.Softplus(7.5),
    "gentle softplus": nn.Softplus(0.3),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
}


@pytest.mark.parametrize("layer", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_constants_of_activations_are_their_steepest_and_most_bent_points(layer):
    v = torch.linspace(-60, 60, 2_000_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(v).sum(), v, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), v)
    found = lipschitz_bounds(layer)
    for bound, measured in ((found.lipschitz, slope.abs().max().item()), (found.curvature, bend.abs().max().item())):
        assert measured <= bound * (1 + 1e-12)
        assert measured == pytest.approx(bound, rel=1e-6)


def test_kinks_have_no_curvature_bound():
    assert lipschitz_bounds(nn.ReLU()) == LipschitzBounds(1.0, math.inf)
    assert lipschitz_bounds(nn.LeakyReLU(0.1)) == LipschitzBounds(1.0, math.inf)
    assert lipschitz_bounds(nn.LeakyReLU(-3.0)) == LipschitzBounds(3.0, math.inf)
    assert lipschitz_bounds(nn.LeakyReLU(1.0)) == ISOMETRY


def small_network(seed: int, activation: nn.Module, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(2, 3, 2, 2), activation, nn.Flatten(), nn.Sequential(nn.Linear(12, 5), activation)]
    return nn.Sequential(*layers, nn.Linear(5, outputs)).double()


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
@pytest.mark.parametrize("score", SCORES)
def test_no_network_is_steeper_or_more_bent_than_composed(activation, score):
    for seed in range(3):
        network = small_network(seed, activation)
        function = {
            "logit": lambda x, net=network: net(x)[:, 1].sum(),
            "prob": lambda x, net=network: net(x).softmax(1)[:, 1].sum(),
            "logprob": lambda x, net=network: net(x).log_softmax(1)[:, 1].sum(),
        }[score]
        bound = lipschitz_bounds(network, of=1, score=score)
        for x in torch.randn(4, 1, 2, 4, 4, dtype=torch.float64) * torch.tensor([0.01, 0.3, 1, 3]).view(4, 1, 1, 1, 1):
            gradient = torch.autograd.functional.jacobian(function, x)
            hessian = torch.autograd.functional.hessian(function, x).view(x.numel(), x.numel())
            assert gradient.norm() <= bound.lipschitz
            assert torch.linalg.eigvalsh(hessian).abs().max() <= bound.curvature


@given(st.lists(st.tuples(st.floats(0.1, 3), st.floats(0, 3)), min_size=2, max_size=5))
def test_composition_of_curves(pieces):
    """Quadratics k v + s v^2/2, whose constants at 0 the law gives exactly: every term is attained."""
    found = ISOMETRY
    v = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = v
    for k, s in pieces:
        found = LipschitzBounds(k, s).after(found)
        value = k * value + s * value.square() / 2
    (slope,) = torch.autograd.grad(value, v, create_graph=True)
    (bend,) = torch.autograd.grad(slope, v) if slope.requires_grad else (torch.zeros(()),)
    assert found.lipschitz == pytest.approx(slope.item(), rel=1e-12)
    assert found.curvature == pytest.approx(bend.item(), rel=1e-12)


constants = st.builds(LipschitzBounds, st.floats(0, 1e3), st.one_of(st.floats(0, 1e3), st.just(math.inf)))


@given(constants, constants, constants)
def test_laws(f, g, h):
    left, right = f.after(g).after(h), f.after(g.after(h))
    assert left.lipschitz == pytest.approx(right.lipschitz, rel=1e-12)
    assert left.curvature == pytest.approx(right.curvature, rel=1e-12)
    assert ISOMETRY.after(f) == f == f.after(ISOMETRY)
    assert f + g == g + f
    assert f + f == LipschitzBounds(2 * f.lipschitz, 2 * f.curvature)
    assert not math.isnan(left.curvature)


def test_nothing_times_infinity_is_nothing():
    kink, constant = LipschitzBounds(1.0, math.inf), LipschitzBounds(0.0, 0.0)
    assert constant.after(kink) == constant == kink.after(constant)
    assert lipschitz_bounds(nn.Sequential(nn.ReLU(), zeros(nn.Linear(3, 2)))) == constant


def zeros(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer


def test_linear_networks_attain_their_constant():
    torch.manual_seed(0)
    first, second = nn.Linear(6, 4).double(), nn.Linear(4, 3).double()
    u = torch.linalg.svd(first.weight.detach()).U
    turn = torch.linalg.qr(torch.randn(3, 3).double()).Q
    with torch.no_grad():  # the strongest direction of the first is the strongest of the second
        second.weight.copy_(turn @ torch.tensor([3.0, 2.0, 1.0]).double().diag() @ u.T[:3])
    product = torch.linalg.svdvals(second.weight.detach() @ first.weight.detach())[0]
    assert lipschitz_bounds(nn.Sequential(first, second)).lipschitz == pytest.approx(float(product), rel=1e-10)


def test_a_logit_has_the_constant_of_its_row():
    network = small_network(0, nn.Softplus())
    lengths, body = network[-1].weight.detach().norm(dim=1).tolist(), lipschitz_bounds(network[:-1])
    for c in range(3):
        found = lipschitz_bounds(network, of=c)
        assert found.lipschitz == pytest.approx(lengths[c] * body.lipschitz, rel=1e-10)
        assert found.curvature == pytest.approx(lengths[c] * body.curvature, rel=1e-10)
    assert lipschitz_bounds(network).lipschitz > max(lipschitz_bounds(network, of=c).lipschitz for c in range(3))
    assert lipschitz_bounds(network, of=1, score="prob") == lipschitz_bounds(network, score="prob")
    assert lipschitz_bounds(nn.Sequential(network, nn.Identity()), of=1) == lipschitz_bounds(network, of=1)


def test_scores_attain_their_first_derivative():
    z = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(z.softmax(0)[0], z)
    assert float(gradient.norm()) == pytest.approx(SCORES["prob"].lipschitz, rel=1e-9)
    far = torch.tensor([-40.0, 0.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(far.log_softmax(0)[0], far)
    assert float(gradient.norm()) == pytest.approx(SCORES["logprob"].lipschitz, rel=1e-9)
    hessian = torch.autograd.functional.hessian(lambda z: z.log_softmax(0)[0], torch.zeros(2, dtype=torch.float64))
    assert float(torch.linalg.eigvalsh(hessian).abs().max()) == pytest.approx(SCORES["logprob"].curvature)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_probability_is_more_bent_than_its_bound(classes):
    generator = torch.Generator().manual_seed(classes)
    worst = 0.0
    for spread in (0.1, 1.0, 2.0, 4.0):
        p = (spread * torch.randn(4000, classes, generator=generator, dtype=torch.float64)).softmax(1)
        eye = torch.eye(classes, dtype=torch.float64)
        aim = eye[0] - p
        hessian = p[:, :1, None] * (aim[:, :, None] * aim[:, None] - torch.diag_embed(p) + p[:, :, None] * p[:, None])
        worst = max(worst, float(torch.linalg.eigvalsh(hessian).abs().max()))
    assert 0.15 < worst < SCORES["prob"].curvature


class Own(nn.Module):
    def __init__(self, answer=None) -> None:
        super().__init__()
        self.answer = answer or LipschitzBounds(2.0, 3.0)

    def forward(self, x):
        return x

    def lipschitz_bounds(self):
        return self.answer


def test_own_layers_tell_themselves():
    assert lipschitz_bounds(Own()) == LipschitzBounds(2.0, 3.0)
    found = lipschitz_bounds(nn.Sequential(nn.PixelShuffle(2), Own(), nn.Softplus()))
    assert found == LipschitzBounds(1.0, 0.25).after(LipschitzBounds(2.0, 3.0))
    with pytest.raises(TypeError, match=r"Own.lipschitz_bounds\(\) must return LipschitzBounds.* got float"):
        lipschitz_bounds(nn.Sequential(Own(2.5)))


class Wrapper(nn.Module):
    """Holds a network, and passes on what a function makes of its input and output."""

    def __init__(self, network, before=lambda x: x, after=lambda x: x) -> None:
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, x):
        return self.after(self.network(self.before(x)))


def test_wrappers_that_pass_on():
    network = small_network(0, nn.Tanh())
    wrapped = Wrapper(network)
    assert lipschitz_bounds(wrapped, of=2) == lipschitz_bounds(network, of=2)
    assert wrapped.network is network
    assert lipschitz_bounds(nn.Sequential(wrapped)) == lipschitz_bounds(network)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x: x / 0.2, lambda x: x),
        (lambda x: x, lambda x: 3 * x),
        (lambda x: x.flatten(1), lambda x: x),
        (lambda x: x.clamp(-1e3, 1e3), lambda x: x),
        (lambda x: x, lambda x: x.softmax(1)),
        (lambda x: x.missing, lambda x: x),
    ],
    ids=["before", "after", "reshaped", "clamped", "softmax", "broken"],
)
def test_wrappers_that_do_more_are_refused(before, after):
    with pytest.raises(TypeError, match="got Wrapper; give lipschitz="):
        lipschitz_bounds(Wrapper(nn.Linear(3, 3), before, after))


def test_a_subclass_that_computes_something_else_is_refused():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 100 * super().forward(x)

    class Renamed(nn.Linear):
        pass

    with pytest.raises(TypeError, match="got Scaled"):
        lipschitz_bounds(nn.Sequential(Scaled(2, 2)))
    layer = Renamed(2, 2)
    assert lipschitz_bounds(layer).lipschitz == spectral_norm(layer.weight)

    class Skip(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    with pytest.raises(TypeError, match="got Skip"):
        lipschitz_bounds(Skip(nn.Linear(2, 2)))


REFUSED = {
    "overlap": (nn.Conv2d(3, 4, 3, 2), ValueError, "Conv2d must have windows that do not overlap"),
    "gaps": (nn.Conv2d(3, 4, 2, 3), ValueError, "kernel_size == stride"),
    "padding": (nn.Conv2d(3, 4, 2, 2, padding=1), ValueError, "padding 0"),
    "padded to the same": (nn.Conv2d(3, 4, 1, padding="same"), ValueError, "padding 0"),
    "dilation": (nn.Conv2d(3, 4, 2, 2, dilation=2), ValueError, "dilation 1"),
    "groups": (nn.Conv2d(4, 4, 2, 2, groups=2), ValueError, "groups 1"),
    "overlapping means": (nn.AvgPool2d(3, 1), ValueError, "AvgPool2d must have windows that do not overlap"),
    "padded means": (nn.AvgPool2d(2, padding=1), ValueError, "padding 0"),
    "partial means": (nn.AvgPool2d(2, ceil_mode=True), ValueError, "ceil_mode=False"),
    "batch norm in training": (nn.BatchNorm2d(3), ValueError, r"call model.eval\(\)"),
    "batch norm without statistics": (nn.BatchNorm2d(3, track_running_stats=False).eval(), ValueError, "track_running"),
    "dropout in training": (nn.Dropout(), ValueError, "Dropout must be in eval mode"),
    "softplus that jumps": (nn.Softplus(1, threshold=2), ValueError, "threshold >= 20"),
    "attention": (nn.MultiheadAttention(4, 2), TypeError, "got MultiheadAttention; give lipschitz= yourself"),
    "squares": (nn.GroupNorm(1, 3), TypeError, "got GroupNorm.*`lipschitz_bounds"),
    "no module": (lambda x: x, TypeError, "must be a torch.nn.Module, got function"),
}


@pytest.mark.parametrize(("layer", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(layer, error, words):
    with pytest.raises(error, match=words):
        lipschitz_bounds(layer)


def test_a_resnet_is_refused_by_the_name_of_its_layer():
    with pytest.raises(TypeError, match="got ResNet18"):
        lipschitz_bounds(load_model("resnet18_softplus"))


def test_bad_options():
    network = small_network(0, nn.Tanh())
    for of, error, words in (
        (3, ValueError, r"0\.\.2, got 3"),
        (-1, ValueError, "at least 0"),
        (1.0, TypeError, "whole number"),
    ):
        with pytest.raises(error, match=words):
            lipschitz_bounds(network, of=of)
    with pytest.raises(ValueError, match="leave `of` out"):
        lipschitz_bounds(network[:-2], of=0)
    with pytest.raises(ValueError, match="Did you mean 'logit'"):
        lipschitz_bounds(network, score="logits")
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match="curvature must be at least 0"):
            LipschitzBounds(1.0, wrong)
    with pytest.raises(TypeError, match="lipschitz must be a number"):
        LipschitzBounds(None)
    network[-1].weight.data[0, 0] = math.nan
    with pytest.raises(ValueError, match="must be finite"):
        lipschitz_bounds(network)


def test_the_network_stays_as_it_is():
    network = small_network(0, nn.Tanh()).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    lipschitz_bounds(Wrapper(network), of=0)
    assert network.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
