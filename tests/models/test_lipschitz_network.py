"""The network of known Lipschitz constant: its layers, its matrices in training and on disk, its constant attained."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from training_data import ARRAYS, CPU

from moreaugrad.model.lipschitz_bounds import LipschitzBounds, lipschitz_bounds
from moreaugrad.models import load_model
from moreaugrad.models.lipschitz import LipschitzNetwork, Shift, SmoothAbs, matrices
from moreaugrad.training.classifiers import ClassifierTrainer
from moreaugrad.training.orthogonal import polar, project
from moreaugrad.training.orthogonal import to_half as to_half_orthonormal
from moreaugrad.training.recipes import LipschitzRecipe

SHAPES = {
    "as it comes": {},
    "two stages": {"widths": (24, 40), "tau": 0.5},
    "small patches": {"widths": (8, 16, 20, 6), "patch": 2, "depth": 1, "tau": 0.1},
    "more channels than numbers": {"widths": (60, 10), "patch": 4, "depth": 3},
    "odd": {"widths": (7,), "depth": 1},
    "linear": {"widths": (5,), "depth": 0},
}


some_shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def trained(shape: dict, seed: int = 0) -> LipschitzNetwork:
    """As after some steps of training: other matrices and biases, all orthonormal again."""
    torch.manual_seed(seed)
    network = LipschitzNetwork(**shape)
    with torch.no_grad():
        for layer in matrices(network):
            layer.weight.add_(torch.randn_like(layer.weight) * 0.5 * layer.weight.square().mean().sqrt())
            layer.bias.normal_(0, 0.2)
    for _ in range(3):
        project(network)
    return network


def stored(network: LipschitzNetwork, shape: dict) -> LipschitzNetwork:
    twin = LipschitzNetwork(**shape)
    twin.load_state_dict(to_half_orthonormal(network))
    return twin


def defects(network: nn.Module) -> list[float]:
    """How far each inner matrix is from orthonormal, and the rows of the last from length 1."""
    *inner, head = (layer.weight.detach().flatten(1).double() for layer in matrices(network))
    found = []
    for matrix in inner:
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        found.append(float((tall.T @ tall - torch.eye(tall.shape[1])).abs().max()))
    return [*found, float((head.norm(dim=1) - 1).abs().max())]


def images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5


def test_smooth_absolute_value():
    v = torch.linspace(-20, 20, 400_001, dtype=torch.float64)
    x = torch.stack([v, v], 0)[None, :, None].requires_grad_()  # channels: one passes, one bends
    layer = SmoothAbs(0.3)
    y = layer(x)
    assert torch.equal(y[:, 0], x[:, 0])
    torch.testing.assert_close(y[0, 1, 0], (v**2 + 0.09).sqrt() - 0.3)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert slope.abs().max() == 1
    assert slope[:, 1].abs().max() < 1
    assert slope[0, 1, 0, -1].item() == pytest.approx(1, abs=2e-4)
    assert bend.abs().max().item() == pytest.approx(layer.lipschitz_bounds().curvature, rel=1e-9)
    assert layer.lipschitz_bounds() == LipschitzBounds(1.0, 1 / 0.3)
    assert y[0, 1].min() == 0


def test_shift_goes_around_and_back():
    x = images(2)
    assert torch.equal(Shift(-1)(Shift(1)(x)), x)
    assert torch.equal(Shift(1)(x)[:, :, 1:, 1:], x[:, :, :-1, :-1])
    assert torch.equal(Shift(1)(x)[:, :, 0, 0], x[:, :, -1, -1])


@some_shapes
def test_first_weights_are_orthonormal_and_keep_images(shape):
    network = LipschitzNetwork(**shape)
    assert max(defects(network)) < 1e-5
    mixes = [layer for layer in matrices(network) if getattr(layer, "kernel_size", None) == (2, 2)]
    for layer in mixes:
        x = torch.randn(2, layer.in_channels, 4, 4)
        torch.testing.assert_close(nn.functional.pixel_shuffle(layer(x), 2), x)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_the_first_channels_are_the_longest_waves(patch):
    network = LipschitzNetwork(widths=(9,), patch=patch)
    colours = torch.tensor([0.3, -0.2, 0.1]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    seen = network.stage1[1](network.stage1[0](colours))
    torch.testing.assert_close(seen[0, :3, 0, 0], patch * torch.tensor([0.3, -0.2, 0.1]))
    assert seen[0, 3:].abs().max() < 1e-5
    across = torch.linspace(-1, 1, patch).repeat(32 // patch).expand(1, 3, 32, 32)
    down, right = network.stage1[1](network.stage1[0](across))[0, 3:, 0, 0].view(2, 3).abs()
    assert {bool(down.max() < 1e-5), bool(right.max() < 1e-5)} == {True, False}


@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_newton_and_schulz_find_the_polar_factor(rows, columns, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    u, _, v = torch.linalg.svd(
        torch.randn(rows, columns, generator=generator, dtype=torch.float64), full_matrices=False
    )
    values = 0.1 + 0.9 * torch.rand(min(rows, columns), generator=generator, dtype=torch.float64)
    torch.testing.assert_close(polar(scale * u @ values.diag() @ v, rounds=25), u @ v, rtol=0, atol=1e-9)


def test_newton_and_schulz_never_overshoot():
    """The bound is a sure one: however the singular values lie, none exceeds 1 on the way."""
    generator = torch.Generator().manual_seed(0)
    for matrix in (
        torch.ones(30, 30),
        torch.eye(30),
        torch.randn(40, 20, generator=generator),
        torch.randn(30, 1, generator=generator) @ torch.randn(1, 30, generator=generator),
        torch.zeros(5, 5),
    ):
        for rounds in range(5):
            found = polar(matrix.double(), rounds)
            assert found.isfinite().all()
            assert torch.linalg.matrix_norm(found, 2) <= 1 + 1e-12


def test_project_is_the_singular_value_decomposition_after_a_step():
    network = LipschitzNetwork(widths=(24, 40))
    with torch.no_grad():
        for layer in matrices(network):
            layer.weight.add_(
                0.003 * torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(0)).sign()
            )
    *wanted, head = (layer.weight.detach().clone().flatten(1) for layer in matrices(network))
    project(network)
    assert max(defects(network)) < 1e-3
    for layer, before in zip(matrices(network), wanted, strict=False):
        u, _, v = torch.linalg.svd(before, full_matrices=False)
        torch.testing.assert_close(layer.weight.flatten(1), u @ v, rtol=0, atol=1e-3)
    torch.testing.assert_close(network.fc.weight.detach(), head / head.norm(dim=1, keepdim=True))
    project(network)
    assert max(defects(network)) < 1e-5  # what was left is made up for


@some_shapes
def test_stored_weights_are_half_precise_and_no_longer_than_one(shape):
    network = trained(shape)
    state = to_half_orthonormal(network)
    assert list(state) == list(network.state_dict())
    assert {tensor.dtype for tensor in state.values()} == {torch.float16}
    twin = stored(network, shape)
    for layer in matrices(twin)[:-1]:
        assert 0.998 < lipschitz_bounds(layer).lipschitz <= 1 + 1e-10
    for c in range(10):
        assert 0.999 < float(twin.fc.weight[c].detach().double().norm()) <= 1
        assert 0.99 < lipschitz_bounds(twin, of=c).lipschitz <= 1 + 1e-9
    x = images(4).float()
    torch.testing.assert_close(twin(x), network(x), rtol=0, atol=0.02)  # logits within 10


def test_weights_that_are_exact_in_half_precision_stay():
    network = LipschitzNetwork(widths=(12,), patch=2, depth=1)
    mix = to_half_orthonormal(network)["stage1.3.weight"]
    assert torch.equal(mix.flatten(1), torch.eye(48).half())


@some_shapes
def test_the_constant_holds_between_images(shape):
    network = stored(trained(shape), shape).double()
    bound = torch.tensor([lipschitz_bounds(network, of=c).lipschitz for c in range(10)])
    x = images(6)
    for size in (1e-4, 0.1, 3.0, 100.0):
        y = x + size * torch.nn.functional.normalize(images(6, 1).flatten(1), dim=1).view_as(x)
        with torch.no_grad():
            moved = (network(x) - network(y)).abs()
        assert (moved <= bound * size * (1 + 1e-9)).all()


@some_shapes
def test_no_jacobian_is_longer_than_the_constant(shape):
    """The largest singular value of the Jacobian of all logits, from ten gradients: exact, not sampled."""
    network = stored(trained(shape), shape).double()
    whole, alone = lipschitz_bounds(network), [lipschitz_bounds(network, of=c) for c in range(10)]
    longest = 0.0
    for scale in (0.3, 1.0, 30.0):
        x = (scale * images(3)).requires_grad_()
        logits = network(x)
        rows = torch.stack([torch.autograd.grad(logits[:, c].sum(), x, retain_graph=True)[0] for c in range(10)], 1)
        assert (torch.linalg.matrix_norm(rows.flatten(2), 2) <= whole.lipschitz * (1 + 1e-12)).all()
        lengths = rows.flatten(2).norm(dim=2)
        assert (lengths <= torch.tensor([each.lipschitz for each in alone]) * (1 + 1e-12)).all()
        longest = max(longest, float(lengths.max()))
    assert longest > 0.2  # and the bound is no idle one


def test_a_linear_one_attains_its_constant():
    """Fewer channels than numbers: orthonormal rows keep every length on the way back."""
    network = LipschitzNetwork(widths=(5,), depth=0, tau=1e-9).double()
    with torch.no_grad():
        network.stage1[1].bias.fill_(5.0)  # beyond the bend of the activation
    x = images(1).requires_grad_()
    (gradient,) = torch.autograd.grad(network(x)[0, 3], x)
    assert float(gradient.norm()) == pytest.approx(lipschitz_bounds(network, of=3).lipschitz, rel=1e-6)


def test_curvature_holds_by_power_iteration():
    shape = {"widths": (12,), "depth": 1, "tau": 0.2}
    network = stored(trained(shape), shape).double()
    bound = lipschitz_bounds(network, of=2).curvature
    assert bound == pytest.approx(2 / 0.2, rel=0.02)
    x = images(1).requires_grad_()
    (gradient,) = torch.autograd.grad(network(x)[0, 2], x, create_graph=True)
    v, size = torch.randn_like(x), 0.0
    for _ in range(50):
        (product,) = torch.autograd.grad(gradient, x, v / v.norm(), retain_graph=True)
        v, size = product, float(product.norm())
    assert 0.01 * bound < size <= bound


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"widths": ()}, ValueError, "1 to 2 stages for patch=8, got"),
        ({"widths": (8, 8, 8)}, ValueError, "each further stage halves the image"),
        ({"widths": (8, 1)}, ValueError, "widths must be at least 2"),
        ({"patch": 3}, ValueError, r"patch must be one of \(2, 4, 8\), got 3"),
        ({"depth": -1}, ValueError, "depth must be at least 0"),
        ({"tau": 0.0}, ValueError, "tau must be a positive"),
        ({"tau": 1e13}, ValueError, "tau must be from 1e-12 to 1e"),
        ({"tau": 1e-320}, ValueError, "tau must be from 1e-12 to 1e"),
        ({"num_classes": 2.5}, TypeError, "num_classes must be a whole number"),
    ],
    ids=str,
)
def test_wrong_shapes(wrong, error, words):
    with pytest.raises(error, match=words):
        LipschitzNetwork(**wrong)


def test_model_in_pixels():
    model = load_model("lipschitz")
    assert (model.view.mean, model.view.std) == ((0.5,) * 3, (1.0,) * 3)
    white, black = (model.preprocess(Image.new("RGB", (32, 32), name)) for name in ("white", "black"))
    assert (white == 0.5).all()
    assert (black == -0.5).all()
    assert model.labels[3] == "cat"
    assert lipschitz_bounds(model, of=3) == lipschitz_bounds(model.network, of=3)
    assert lipschitz_bounds(model, of=3).lipschitz == pytest.approx(1, abs=1e-4)
    assert load_model("lipschitz", labels=["a", "b"])(white[None]).shape == (1, 2)


def test_a_file_says_its_own_shape(tmp_path):
    shape = SHAPES["small patches"]
    network = trained(shape)
    notes = {"widths": "8,16,20,6", "patch": "2", "depth": "1", "tau": "0.1"}
    save_file(to_half_orthonormal(network), tmp_path / "net.safetensors", notes)
    model = load_model("lipschitz", weights=tmp_path / "net.safetensors")
    x = images(3).float()
    assert torch.equal(model(x), stored(network, shape).eval()(x))
    assert {each.tau for each in model.modules() if isinstance(each, SmoothAbs)} == {0.1}
    for key, value in (("widths", "8;16"), ("tau", "round")):
        save_file(to_half_orthonormal(network), tmp_path / "bad.safetensors", notes | {key: value})
        with pytest.raises(ValueError, match="widths, depth, tau and patch in numbers"):
            load_model("lipschitz", weights=tmp_path / "bad.safetensors")


def test_matrices_stay_orthonormal_at_a_high_rate():
    training = ClassifierTrainer(LipschitzRecipe(widths=(12, 8), epochs=2, warm_up=0, batch=32, lr=0.05), ARRAYS, CPU)
    training.advance()
    assert max(defects(training.network)) < 0.05
    project(training.network)
    assert max(defects(training.network)) < 1e-4
