"""Training: it learns, goes on bit for bit where it stopped, and says what is wrong with its input."""

import json
import math
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from coloured_images import coloured
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from moreaugrad.cli.app import main
from moreaugrad.data.arrays import Arrays, read_cifar10
from moreaugrad.models import checkpoint, load_model, resnet
from moreaugrad.models.checkpoint import WeightsUnavailableError
from moreaugrad.models.resnet import ResNet18
from moreaugrad.training import checkpoints as resumable
from moreaugrad.training.augment import crop_and_flip, moved
from moreaugrad.training.checkpoints import Files
from moreaugrad.training.loop import Recipe, Training, accuracy, normalised
from moreaugrad.training.recipes import halved

ADAPTER = Path(__file__).parents[2] / "tools" / "cifar10_npz.py"
SMALL = ["--data", "tiny.npz", "--out", "net", "--width", "2", "--batch", "32", "--epochs", "4", "--lr", "0.1"]
TINY = Recipe(width=2, batch=32, epochs=2, lr=0.1)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return Arrays(*coloured(128, 0), *coloured(60, 1))


@pytest.fixture
def folder(tmp_path, monkeypatch, arrays):
    """A working folder with a data file."""
    monkeypatch.chdir(tmp_path)
    np.savez("tiny.npz", **parts(arrays))
    return tmp_path


@pytest.fixture
def run(capsys):
    """`moreaugrad train cifar10` in this process: exit code, stdout, stderr."""

    def go(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["train", "cifar10", *map(str, arguments)])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return go


def parts(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: getattr(arrays, name) for name in ("x_train", "y_train", "x_test", "y_test")}


def notes(path: str) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def lines(path: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_it_learns_and_the_file_holds_what_was_measured(folder, run, arrays):
    code, out, err = run(*SMALL, "--width", "4", "--epochs", "12", "--noise-sigma", "0.1", "--beta", "2")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 13
    log = lines("net.log.jsonl")
    measured = {"epoch", "lr", "train_loss", "test_accuracy", "test_accuracy_noisy", "seconds"}
    assert [set(line) for line in log] == [measured] * 12
    assert [line["epoch"] for line in log] == list(range(1, 13))
    assert log[-1]["train_loss"] < 0.8 * log[0]["train_loss"]
    assert log[-1]["test_accuracy"] > 0.9
    told = notes("net.safetensors")
    assert float(told["accuracy_float32"]) == pytest.approx(log[-1]["test_accuracy"], abs=1e-4)
    assert (told["dataset"], told["activation"], told["beta"], told["width"]) == ("CIFAR-10", "softplus", "2.0", "4")
    assert (told["seed"], told["epochs"], told["torch"]) == ("0", "12", torch.__version__)
    assert not list(folder.glob(".*"))
    # the picture's own way into the model: the same crop, the same normalisation
    model = load_model("resnet18_softplus", weights="net.safetensors")
    assert model.network.act1.beta == 2
    assert model.labels[3] == "cat"
    x = torch.stack([model.preprocess(Image.fromarray(pixels)) for pixels in arrays.x_test])
    torch.testing.assert_close(x, normalised(torch.from_numpy(arrays.x_test)), rtol=0, atol=0)
    right = (model(x).argmax(1).numpy() == arrays.y_test).mean()
    assert right == pytest.approx(float(told["accuracy_stored"]), abs=1e-4)


def test_resumed_is_straight_bit_for_bit(folder, run):
    run(*SMALL, "--out", "straight", "--noise-sigma", "0.1")
    stopped = [*SMALL, "--noise-sigma", "0.1", "--limit-seconds", "0"]
    for epoch in (1, 2, 3):
        code, out, _ = run(*stopped)
        assert code == 1
        assert f"stopped after epoch {epoch} of 4" in out
        assert not Path("net.safetensors").exists()
        assert len(lines("net.log.jsonl")) == epoch
    assert run(*stopped)[0] == 0
    assert same(load_file("net.safetensors"), load_file("straight.safetensors"))
    ours, theirs = (torch.load(f"{name}.checkpoint.pt", weights_only=True) for name in ("net", "straight"))
    assert same(ours["network"], theirs["network"])
    assert torch.equal(ours["generator"], theirs["generator"])
    assert [line["train_loss"] for line in ours["history"]] == [line["train_loss"] for line in theirs["history"]]
    assert run(*stopped)[0] == 0  # once more: nothing left to do
    assert same(load_file("net.safetensors"), load_file("straight.safetensors"))
    assert notes("net.safetensors") == notes("straight.safetensors")


def test_a_killed_process_loses_only_what_came_after_its_checkpoint(folder, run, monkeypatch):
    run(*SMALL, "--out", "straight")
    epoch = Training.advance

    def killed(self, watch):
        if len(self.history) == 2:
            raise KeyboardInterrupt
        monkeypatch.setattr(resumable, "EVERY", math.inf if self.history else 0.0)
        return epoch(self, watch)

    monkeypatch.setattr(Training, "advance", killed)
    assert run(*SMALL)[0] == 130
    assert len(lines("net.log.jsonl")) == 2
    monkeypatch.setattr(Training, "advance", epoch)
    code, out, _ = run(*SMALL)
    assert code == 0
    assert "going on after epoch 1 of 4" in out
    assert [line["epoch"] for line in lines("net.log.jsonl")] == [1, 2, 3, 4]
    assert same(load_file("net.safetensors"), load_file("straight.safetensors"))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--lr", "0.2"], "lr 0.1 instead of 0.2"),
        (["--epochs", "5"], "epochs 4 instead of 5"),
        (["--seed", "1"], "seed 0 instead of 1"),
        (["--activation", "relu"], "activation 'softplus' instead of 'relu'"),
        (["--data", "other.npz"], "data '"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_checkpoint_of_other_options_is_refused(folder, run, arrays, option, told):
    np.savez("other.npz", **parts(arrays) | {"y_train": arrays.y_train[::-1]})
    run(*SMALL, "--limit-seconds", "0")
    before = Path("net.checkpoint.pt").read_bytes()
    code, out, err = run(*SMALL, *option)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert told in err
    assert "--restart" in err
    assert Path("net.checkpoint.pt").read_bytes() == before
    code, out, _ = run(*SMALL, *option, "--restart", "--limit-seconds", "0")
    assert (code, "stopped after epoch 1" in out) == (1, True)


def test_a_damaged_checkpoint_is_refused(folder, run):
    for junk in (b"junk", b""):
        Path("net.checkpoint.pt").write_bytes(junk)
        code, _, err = run(*SMALL)
        assert (code, len(err.splitlines())) == (2, 1)
        assert "--restart" in err
    torch.save({"weights": torch.zeros(2)}, "net.checkpoint.pt")
    assert "--restart" in run(*SMALL)[2]


def test_a_restart_killed_at_once_does_not_go_on_from_the_old_checkpoint(folder, run, monkeypatch):
    run(*SMALL, "--limit-seconds", "0")
    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", lambda self, watch: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*SMALL, "--restart")[0] == 130
    assert "stopped after epoch 1" in run(*SMALL, "--limit-seconds", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "missing.npz"], "nothing there"),
        (["--data", "."], "download=True"),
        (["--activation", "relo"], "Did you mean 'relu'"),
        (["--beta", "0"], "beta must be a positive"),
        (["--noise-sigma", "-1"], "noise_sigma must be a finite number >= 0"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--batch", "0"], "batch must be at least 1"),
        (["--lr", "nan"], "lr must be a positive finite"),
        (["--device", "nonsense"], "device must be one that works here"),
        (["--out", "folder.safetensors"], "--out must be a file"),
        (["--lr", "1e30"], "lower --lr"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line(folder, run, arguments, words):
    (folder / "folder.safetensors").mkdir()
    code, _, err = run(*SMALL, *arguments)
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1


BAD = {
    "missing array": ({"y_test": None}, r"without \['y_test'\]"),
    "channels first": ({"x_train": np.zeros((9, 3, 32, 32), np.uint8)}, "put the channels last"),
    "floats": ({"x_test": np.zeros((9, 32, 32, 3))}, "x_test .* must be uint8 .* got float64"),
    "no images": ({"x_test": np.zeros((0, 32, 32, 3), np.uint8)}, "N > 0"),
    "too few labels": ({"y_train": np.zeros(7, np.int64)}, r"y_train .* of shape \(128,\)"),
    "float labels": ({"y_train": np.zeros(128)}, "whole numbers"),
    "label too large": ({"y_test": np.full(60, 10)}, r"0\.\.9, got labels from 10 to 10"),
    "label negative": ({"y_test": np.full(60, -1)}, "from -1 to -1"),
    "objects": ({"y_train": np.array([None] * 128)}, "readable .npz"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD.keys())
def test_bad_arrays(tmp_path, arrays, change, words):
    found = {name: value for name, value in (parts(arrays) | change).items() if value is not None}
    np.savez(tmp_path / "bad.npz", **found)
    with pytest.raises(ValueError, match=words):
        read_cifar10(tmp_path / "bad.npz")


def test_bad_files(tmp_path):
    (tmp_path / "junk.npz").write_bytes(b"junk")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    np.save(tmp_path / "one.npy", np.zeros(3))
    for name in ("junk.npz", "cut.npz", "one.npy"):
        with pytest.raises(ValueError, match="data must"):
            read_cifar10(tmp_path / name)


def test_torchvisions_folder(tmp_path, monkeypatch, arrays):
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *given: True)
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    for number in range(1, 6):
        some = slice(24 * (number - 1), 24 * number)
        pixels, labels = arrays.x_train[some].transpose(0, 3, 1, 2).reshape(24, -1), arrays.y_train[some].tolist()
        (place / f"data_batch_{number}").write_bytes(pickle.dumps({"data": pixels, "labels": labels}))
    pixels = arrays.x_test.transpose(0, 3, 1, 2).reshape(60, -1)
    (place / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": arrays.y_test.tolist()}))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": list(resnet.CIFAR10)}))
    found = read_cifar10(tmp_path)
    np.testing.assert_array_equal(found.x_train, arrays.x_train[:120])
    np.testing.assert_array_equal(found.y_test, arrays.y_test)


def slowly(image: np.ndarray, down: int, right: int, flip: bool) -> np.ndarray:
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="reflect")
    cut = padded[4 + down : 4 + down + image.shape[0], 4 + right : 4 + right + image.shape[1]]
    return cut[:, ::-1] if flip else cut


def test_moves_are_crops_of_a_padded_image():
    pixels = np.random.default_rng(0).integers(0, 256, (162, 9, 12, 3), dtype=np.uint8)
    moves = [(down, right, flip) for down in range(-4, 5) for right in range(-4, 5) for flip in (False, True)]
    down, right, flip = (torch.tensor(each) for each in zip(*moves, strict=True))
    found = moved(torch.from_numpy(pixels), down, right, flip)
    for image, ours, move in zip(pixels, found.numpy(), moves, strict=True):
        np.testing.assert_array_equal(ours, slowly(image, *move))


def test_augmentation_draws_every_move():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pixels = torch.from_numpy(image).expand(4000, -1, -1, -1)
    found = crop_and_flip(pixels, torch.Generator().manual_seed(0))
    assert torch.equal(found, crop_and_flip(pixels, torch.Generator().manual_seed(0)))
    possible = {
        slowly(image, down, right, flip).tobytes()
        for down in range(-4, 5)
        for right in range(-4, 5)
        for flip in (False, True)
    }
    assert {each.tobytes() for each in found.numpy()} == possible  # 4000 draws miss one of 162 once in 10^8 times


def test_rate_rises_then_falls_to_zero():
    recipe = Recipe(epochs=100, lr=0.2)
    assert recipe.rate(0) == 0
    assert recipe.rate(2.5) == pytest.approx(0.1)
    assert recipe.rate(5) == pytest.approx(0.2)
    assert recipe.rate(52.5) == pytest.approx(0.1)
    assert recipe.rate(100) == pytest.approx(0, abs=1e-12)
    assert Recipe(epochs=1).rate(0.5) == pytest.approx(0.2)
    assert Recipe(epochs=1, warm_up=0).rate(0) == pytest.approx(0.2)


def test_training_is_a_function_of_the_seed_and_leaves_random_states(arrays):
    torch.rand(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    runs = []
    for seed in (0, 0, 1):
        one = Training(Recipe(width=2, batch=32, epochs=1, seed=seed), arrays, CPU)
        one.advance()
        runs.append(one.network.state_dict())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def test_one_step_is_the_written_out_one(arrays):
    """One batch, warm-up none: w - lr (1 + m) (gradient + decay w), the first step of Nesterov."""
    recipe = Recipe(width=2, batch=128, epochs=1, warm_up=0, weight_decay=0.1)
    training, twin = (Training(recipe, arrays, CPU) for _ in range(2))
    order = torch.randperm(128, generator=twin.generator)
    x = normalised(crop_and_flip(twin.x[order], twin.generator))
    loss = torch.nn.functional.cross_entropy(twin.network.train()(x), twin.y[order])
    names, weights = zip(*twin.network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, weights)
    line = training.advance()
    assert line["train_loss"] == pytest.approx(loss.item(), abs=1e-5)
    after = dict(training.network.named_parameters())
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        decay = 0.1 if weight.ndim > 1 else 0.0
        wanted = weight - recipe.rate(0.5) * 1.9 * (gradient + decay * weight)
        torch.testing.assert_close(after[name], wanted, rtol=1e-4, atol=1e-6)


def test_a_network_that_cannot_be_compiled_is_trained_as_it_is(arrays, monkeypatch, caplog):
    def broken(network, **options):
        def forward(x):
            network(x)  # moves the statistics of batch norm before it fails
            raise RuntimeError("no compiler\nhere")

        return forward

    plain = Training(TINY, arrays, CPU)
    monkeypatch.setattr(torch, "compile", broken)
    training = Training(TINY, arrays, CPU, compile=True)
    assert "cannot be compiled (RuntimeError: no compiler)" in caplog.text
    plain.advance()
    training.advance()
    assert same(plain.network.state_dict(), training.network.state_dict())


@pytest.mark.parametrize(("activation", "kind"), [("softplus", torch.nn.Softplus), ("relu", torch.nn.ReLU)])
def test_activations(activation, kind):
    network = ResNet18(activation=activation, beta=3.0)
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962
    assert len([module for module in network.modules() if isinstance(module, kind)]) == 17
    assert {name for name, _ in network.named_children()} == {
        *("conv1", "bn1", "act1", "layer1", "layer2", "layer3", "layer4", "pool", "fc")
    }


def test_half_precision_file_round_trip(tmp_path):
    state = ResNet18(width=2).state_dict() | {"bn1.running_var": torch.tensor([1e6, 2.0])}
    stored = halved(state)
    assert not any("num_batches" in name for name in stored)
    assert stored["conv1.weight"].dtype == torch.float16
    assert stored["bn1.running_var"].tolist() == [1e6, 2.0]  # more than float16 can hold
    save_file(stored, tmp_path / "net.safetensors", {"activation": "relu", "width": "2"})
    model = load_model("resnet18_softplus", weights=tmp_path / "net.safetensors")
    assert isinstance(model.network.act1, torch.nn.ReLU)
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    torch.testing.assert_close(model.network.conv1.weight, state["conv1.weight"].half().float(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("told", "words"),
    [({"beta": "steep"}, "beta and width in numbers"), ({"activation": "tanh"}, "activation must be one of")],
    ids=["beta", "activation"],
)
def test_notes_that_make_no_network(tmp_path, told, words):
    save_file({"fc.bias": torch.zeros(10)}, tmp_path / "net.safetensors", told)
    with pytest.raises(ValueError, match=words):
        load_model("resnet18_softplus", weights=tmp_path / "net.safetensors")


def test_weights_that_come_with_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "files", lambda package: tmp_path)
    with pytest.raises(WeightsUnavailableError, match="moreaugrad train cifar10 --data FOLDER --out FILE"):
        load_model("resnet18_softplus_cifar10")
    assert load_model("resnet18_softplus_cifar10", weights="random").labels[0] == "airplane"
    (tmp_path / "weights").mkdir()
    network = ResNet18(width=2)
    save_file(halved(network.state_dict()), tmp_path / "weights/resnet18_softplus_cifar10.safetensors", {"width": "2"})
    model = load_model("resnet18_softplus_cifar10")
    torch.testing.assert_close(model.network.fc.weight, network.fc.weight.half().float())
    assert (model.view.mean, model.view.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def test_accuracy_counts_over_several_calls(arrays):
    network = Training(TINY, arrays, CPU).network
    x, y = torch.from_numpy(np.tile(arrays.x_test, (10, 1, 1, 1))), torch.from_numpy(np.tile(arrays.y_test, 10)).long()
    assert accuracy(network, x, y) == accuracy(network, x[:60], y[:60])
    with torch.no_grad():
        assert accuracy(network, x, network.eval()(normalised(x)).argmax(1)) == 1


def test_files_lie_beside_each_other(tmp_path):
    files = Files.at(tmp_path / "new" / "net.v2")
    assert [path.name for path in (files.weights, files.checkpoint, files.log)] == [
        "net.v2.safetensors",
        "net.v2.checkpoint.pt",
        "net.v2.log.jsonl",
    ]


@pytest.mark.parametrize(
    "arguments", [["train"], ["train", "--help"], ["train", "cifar10", "--help"], ["train", "tiny-imagenet", "--help"]]
)
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom moreaugrad.cli.app import main\n"
        f"try: main({arguments})\n"
        "except SystemExit: sys.stderr.write(str([name for name in ('torch', 'numpy', 'PIL') if name in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stderr == "[]"
    assert ("tiny-imagenet" if "tiny-imagenet" in arguments else "cifar10") in found.stdout


def test_adapter(tmp_path, arrays):
    for half, pixels, labels in (
        ("train", arrays.x_train, arrays.y_train),
        ("test", arrays.x_test, arrays.y_test),
    ):
        (tmp_path / half).mkdir()
        for number, some in enumerate(np.split(pixels, 2)):
            strip = Image.fromarray(some.reshape(-1, 32, 3))
            strip.save(tmp_path / half / f"{number:03}.webp", lossless=True)
        np.save(tmp_path / f"{half}_labels.npy", labels)

    def convert(*given: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ADAPTER), *map(str, given)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert convert(tmp_path, tmp_path / "made.npz").returncode == 0
    found = read_cifar10(tmp_path / "made.npz")
    for name, wanted in parts(arrays).items():
        np.testing.assert_array_equal(getattr(found, name), wanted)
    assert "usage" in convert(tmp_path).stderr
    np.save(tmp_path / "test_labels.npy", arrays.y_test[1:])
    assert "60 images and 59 labels" in convert(tmp_path, tmp_path / "made.npz").stderr


@pytest.mark.gpu
def test_on_a_gpu_compiled_and_resumed(folder):
    """In a process of its own: the compiler cannot trace the checks of shapes that tests put around functions."""
    script = """
import torch
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.training.loop import Recipe, Training
cuda, arrays = torch.device("cuda"), read_cifar10("tiny.npz")
recipe = Recipe(width=8, batch=32, epochs=6, lr=0.1, noise_sigma=0.1)
first = Training(recipe, arrays, cuda, compile=True)
assert first.forward is not first.network, "not compiled"
for _ in range(3):
    first.advance()
torch.save(first.state(), "state.pt")
second = Training(recipe, arrays, cuda)
second.load(torch.load("state.pt", map_location=cuda, weights_only=True))
while not second.finished:
    second.advance()
assert second.history[-1]["test_accuracy"] > 0.9, second.history
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
