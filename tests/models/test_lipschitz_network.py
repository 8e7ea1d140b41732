"""The network of known Lipschitz constant: its layers, its matrices in training and on disk, its constant attained."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from coloured_images import coloured
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from moreaugrad.certificates.lipschitz_bounds import Smoothness, smoothness
from moreaugrad.cli.app import main
from moreaugrad.data.arrays import Arrays
from moreaugrad.models import checkpoint, load_model
from moreaugrad.models.checkpoint import WeightsUnavailableError
from moreaugrad.models.lipschitz import LipschitzNetwork, Shift, SmoothAbs, matrices
from moreaugrad.training.augment import crop_and_flip
from moreaugrad.training.loop import Noise, Training, accuracy, normalised
from moreaugrad.training.orthogonal import folded, polar, project
from moreaugrad.training.recipes import LipschitzRecipe

CPU = torch.device("cpu")
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
    twin.load_state_dict(folded(network))
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
    assert bend.abs().max().item() == pytest.approx(layer.smoothness().curvature, rel=1e-9)
    assert layer.smoothness() == Smoothness(1.0, 1 / 0.3)
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


def test_size():
    network = LipschitzNetwork()
    assert sum(each.numel() for each in network.parameters()) < 600_000


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
    state = folded(network)
    assert list(state) == list(network.state_dict())
    assert {tensor.dtype for tensor in state.values()} == {torch.float16}
    twin = stored(network, shape)
    for layer in matrices(twin)[:-1]:
        assert 0.998 < smoothness(layer).lipschitz <= 1 + 1e-10
    for c in range(10):
        assert 0.999 < float(twin.fc.weight[c].detach().double().norm()) <= 1
        assert 0.99 < smoothness(twin, of=c).lipschitz <= 1 + 1e-9
    x = images(4).float()
    torch.testing.assert_close(twin(x), network(x), rtol=0, atol=0.02)  # logits within 10


def test_weights_that_are_exact_in_half_precision_stay():
    network = LipschitzNetwork(widths=(12,), patch=2, depth=1)
    mix = folded(network)["stage1.3.weight"]
    assert torch.equal(mix.flatten(1), torch.eye(48).half())


@some_shapes
def test_the_constant_holds_between_images(shape):
    network = stored(trained(shape), shape).double()
    bound = torch.tensor([smoothness(network, of=c).lipschitz for c in range(10)])
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
    whole, alone = smoothness(network), [smoothness(network, of=c) for c in range(10)]
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
    assert float(gradient.norm()) == pytest.approx(smoothness(network, of=3).lipschitz, rel=1e-6)


def test_curvature_holds_by_power_iteration():
    shape = {"widths": (12,), "depth": 1, "tau": 0.2}
    network = stored(trained(shape), shape).double()
    bound = smoothness(network, of=2).curvature
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
    assert smoothness(model, of=3) == smoothness(model.network, of=3)
    assert smoothness(model, of=3).lipschitz == pytest.approx(1, abs=1e-4)
    assert load_model("lipschitz", labels=["a", "b"])(white[None]).shape == (1, 2)


def test_a_file_says_its_own_shape(tmp_path):
    shape = SHAPES["small patches"]
    network = trained(shape)
    notes = {"widths": "8,16,20,6", "patch": "2", "depth": "1", "tau": "0.1"}
    save_file(folded(network), tmp_path / "net.safetensors", notes)
    model = load_model("lipschitz", weights=tmp_path / "net.safetensors")
    x = images(3).float()
    assert torch.equal(model(x), stored(network, shape).eval()(x))
    assert {each.tau for each in model.modules() if isinstance(each, SmoothAbs)} == {0.1}
    for key, value in (("widths", "8;16"), ("tau", "round")):
        save_file(folded(network), tmp_path / "bad.safetensors", notes | {key: value})
        with pytest.raises(ValueError, match="widths, depth, tau and patch in numbers"):
            load_model("lipschitz", weights=tmp_path / "bad.safetensors")


def test_weights_that_come_with_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "files", lambda package: tmp_path)
    with pytest.raises(WeightsUnavailableError, match="train cifar10 --network lipschitz --data FOLDER --out FILE"):
        load_model("lipschitz_cifar10")
    assert load_model("lipschitz_cifar10", weights="random").labels[0] == "airplane"
    (tmp_path / "weights").mkdir()
    network = LipschitzNetwork(widths=(6,))
    save_file(folded(network), tmp_path / "weights/lipschitz_cifar10.safetensors", {"widths": "6"})
    model = load_model("lipschitz_cifar10")
    torch.testing.assert_close(model.network.fc.weight, network.fc.weight, rtol=0, atol=1e-3)


# training


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return Arrays(*coloured(128, 0), *coloured(60, 1))


@pytest.fixture
def run(tmp_path, monkeypatch, arrays, capsys):
    """`moreaugrad train cifar10 --network lipschitz` on a tiny data file: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    np.savez("tiny.npz", x_train=arrays.x_train, y_train=arrays.y_train, x_test=arrays.x_test, y_test=arrays.y_test)
    small = ["--data", "tiny.npz", "--out", "net", "--widths", "12,8", "--depth", "1", "--batch", "32"]

    def go(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["train", "cifar10", "--network", "lipschitz", *small, *arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return go


def test_the_command_trains_a_network_of_constant_one(run, arrays):
    code, out, err = run("--epochs", "8", "--noise-sigma", "0.25", "--tau", "0.3", "--temperature", "5")
    assert (code, err) == (0, "")
    assert "% under noise" in out
    with safe_open("net.safetensors", "pt") as file:
        notes = file.metadata()
    assert {key: notes[key] for key in ("network", "widths", "depth", "tau", "temperature", "noise_sigma")} == {
        "network": "lipschitz",
        "widths": "12,8",
        "depth": "1",
        "tau": "0.3",
        "temperature": "5.0",
        "noise_sigma": "0.25",
    }
    model = load_model("lipschitz", weights="net.safetensors")
    assert not any("parametrizations" in name for name, _ in model.named_modules())
    for c in range(10):
        assert 0.99 < smoothness(model, of=c).lipschitz <= 1 + 1e-9
    x = torch.stack([model.preprocess(Image.fromarray(pixels)) for pixels in arrays.x_test])
    torch.testing.assert_close(x, normalised(torch.from_numpy(arrays.x_test), LipschitzRecipe.scale), rtol=0, atol=0)
    right = (model(x).argmax(1).numpy() == arrays.y_test).mean()
    assert right == pytest.approx(float(notes["accuracy_stored"]), abs=1e-4)
    assert right > 0.9
    assert float(notes["accuracy_noisy_stored"]) > 0.8


def test_resumed_is_straight_bit_for_bit(run):
    options = ["--epochs", "3", "--noise-sigma", "0.25"]
    run(*options, "--out", "straight")
    for _ in range(2):
        assert run(*options, "--limit-seconds", "0")[0] == 1
    assert run(*options)[0] == 0
    ours, theirs = load_file("net.safetensors"), load_file("straight.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    ours, theirs = (torch.load(f"{name}.checkpoint.pt", weights_only=True)["history"] for name in ("net", "straight"))
    for line in (*ours, *theirs):
        del line["seconds"]
    assert ours == theirs  # the accuracy under noise too


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--beta", "2"], "--beta must be left out for --network lipschitz"),
        (["--weight-decay", "0.1"], "belongs to resnet18"),
        (["--network", "resnet18"], "must be left out for --network resnet18"),
        (["--network", "lipshitz"], "Did you mean 'lipschitz'"),
        (["--widths", "12;8"], "whole numbers with commas between"),
        (["--widths", "12,8,8"], "halves the image"),
        (["--tau", "-1"], "tau must be a positive"),
        (["--temperature", "0"], "temperature must be a positive"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line(run, arguments, words):
    code, _, err = run(*arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert words in err


def test_matrices_stay_orthonormal_at_a_high_rate(arrays):
    training = Training(LipschitzRecipe(widths=(12, 8), epochs=2, warm_up=0, batch=32, lr=0.05), arrays, CPU)
    training.advance()
    assert max(defects(training.network)) < 0.05
    project(training.network)
    assert max(defects(training.network)) < 1e-4


def test_the_loss_is_that_of_hotter_logits(arrays):
    """One batch, one step: the loss written out."""
    recipe = LipschitzRecipe(widths=(6,), depth=1, epochs=1, batch=128, temperature=7.0)
    training, twin = (Training(recipe, arrays, CPU) for _ in range(2))
    order = torch.randperm(128, generator=twin.generator)
    x = crop_and_flip(twin.x[order], twin.generator).permute(0, 3, 1, 2) / 255 - 0.5
    logits = 7 * twin.network(x).detach()
    wanted = (logits.logsumexp(1) - logits[torch.arange(128), twin.y[order]]).mean()
    assert training.advance()["train_loss"] == pytest.approx(float(wanted), abs=1e-5)


@pytest.mark.gpu
def test_on_a_gpu_compiled_and_resumed(run):
    """In a process of its own: the compiler cannot trace the checks of shapes that tests put around functions."""
    script = """
import torch
from moreaugrad.certificates.lipschitz_bounds import smoothness
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.training.loop import Training
from moreaugrad.training.recipes import LipschitzRecipe
cuda, arrays = torch.device("cuda"), read_cifar10("tiny.npz")
recipe = LipschitzRecipe(widths=(12, 8), batch=32, epochs=8, temperature=5.0, noise_sigma=0.25)
first = Training(recipe, arrays, cuda, compile=True)
assert first.forward is not first.network, "not compiled"
for _ in range(4):
    first.advance()
torch.save(first.state(), "state.pt")
second = Training(recipe, arrays, cuda)
second.load(torch.load("state.pt", map_location=cuda, weights_only=True))
while not second.finished:
    second.advance()
assert second.history[-1]["test_accuracy"] > 0.9, second.history
stored = recipe.build()
stored.load_state_dict(recipe.state(second.network))
assert 0.99 < smoothness(stored, of=0).lipschitz <= 1 + 1e-9
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_accuracy_under_noise_is_one_draw_per_image(arrays):
    """A network that knows no images but the size of the noise."""

    class Loud(nn.Module):
        def forward(self, x):
            loud = (x.flatten(1).std(1) > 1).double()
            return torch.stack([1 - loud, loud], 1)

    x, y = torch.from_numpy(arrays.x_test), torch.ones(60, dtype=torch.long)
    noise = Noise(3.0, torch.Generator().manual_seed(0))
    assert accuracy(Loud(), x, y, LipschitzRecipe.scale) == 0
    assert accuracy(Loud(), x, y, LipschitzRecipe.scale, noise) == 1
    shape = torch.zeros(50, 3, 32, 32)
    drawn = noise.on(shape)
    assert float(drawn.std()) == pytest.approx(3, rel=0.01)
    assert not torch.equal(drawn[0], drawn[1])
    assert abs(float((drawn[0] * drawn[1]).mean())) < 0.9  # 5 standard deviations
