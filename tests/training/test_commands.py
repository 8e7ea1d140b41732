"""`moreaugrad train`: it learns, resumes bit for bit where it stopped, and names what is wrong with its input."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from training_data import ARRAYS, WNIDS, log_lines, make_tiny_imagenet, metadata, same_tensors, save_arrays

import moreaugrad as mg
from moreaugrad.data.images import read_image
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds
from moreaugrad.models import load_model
from moreaugrad.training import trainer
from moreaugrad.training.augment import normalise
from moreaugrad.training.classifiers import ClassifierTrainer
from moreaugrad.training.recipes import LipschitzRecipe, ResNetRecipe
from moreaugrad.training.trainer import training_files

SMALL = ["cifar10", "--data", "tiny.npz", "--width", "2", "--batch", "32", "--epochs", "4", "--lr", "0.1"]
LIPSCHITZ = [
    *("cifar10", "--data", "tiny.npz", "--network", "lipschitz", "--widths", "12,8", "--depth", "1", "--batch", "32"),
    *("--epochs", "3", "--noise-sigma", "0.25"),
]
TINY_IMAGENET = ["tiny-imagenet", "--data", "whole", "--size", "32", "--batch", "8", "--epochs", "3", "--lr", "0.01"]
COMMANDS = {"resnet18": [*SMALL, "--noise-sigma", "0.1"], "lipschitz": LIPSCHITZ, "efficientnet": TINY_IMAGENET}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Read only."""
    return make_tiny_imagenet(tmp_path_factory.mktemp("data") / "tiny-imagenet-200")


@pytest.fixture
def train(run, tmp_path, monkeypatch, whole):
    """`moreaugrad train` in a working folder with small data: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    save_arrays("tiny.npz")
    Path("whole").symlink_to(whole)
    return lambda command, *options: run("train", *command, "--out", "net", *options)


def test_a_resnet_learns_and_the_file_holds_what_was_measured(train):
    code, out, err = train(SMALL, "--width", "4", "--epochs", "12", "--noise-sigma", "0.1", "--beta", "2")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 13
    log = log_lines("net.log.jsonl")
    measured = {"epoch", "lr", "train_loss", "test_accuracy", "test_accuracy_noisy", "seconds"}
    assert [set(line) for line in log] == [measured] * 12
    assert [line["epoch"] for line in log] == list(range(1, 13))
    assert log[-1]["train_loss"] < 0.8 * log[0]["train_loss"]
    assert log[-1]["test_accuracy"] > 0.9
    stated = metadata("net.safetensors")
    assert float(stated["accuracy_float32"]) == pytest.approx(log[-1]["test_accuracy"], abs=1e-4)
    wanted = {"dataset": "CIFAR-10", "activation": "softplus", "beta": "2.0", "width": "4", "seed": "0", "epochs": "12"}
    assert (wanted | {"torch": torch.__version__}).items() <= stated.items()
    assert not list(Path().glob(".*"))
    # the picture's own way into the model: the same crop, the same normalisation
    model = load_model("resnet18_softplus", weights="net.safetensors")
    assert model.network.act1.beta == 2
    assert model.labels[3] == "cat"
    x = torch.stack([model.preprocess(Image.fromarray(pixels)) for pixels in ARRAYS.x_test])
    torch.testing.assert_close(x, normalise(torch.from_numpy(ARRAYS.x_test), ResNetRecipe.scale), rtol=0, atol=0)
    right = (model(x).argmax(1).numpy() == ARRAYS.y_test).mean()
    assert right == pytest.approx(float(stated["accuracy_stored"]), abs=1e-4)


def test_the_command_trains_a_network_of_constant_one(train):
    code, out, err = train(LIPSCHITZ, "--epochs", "8", "--tau", "0.3", "--temperature", "5")
    assert (code, err) == (0, "")
    assert "% under noise" in out
    notes = metadata("net.safetensors")
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
        assert 0.99 < lipschitz_bounds(model, of=c).lipschitz <= 1 + 1e-9
    x = torch.stack([model.preprocess(Image.fromarray(pixels)) for pixels in ARRAYS.x_test])
    torch.testing.assert_close(x, normalise(torch.from_numpy(ARRAYS.x_test), LipschitzRecipe.scale), rtol=0, atol=0)
    right = (model(x).argmax(1).numpy() == ARRAYS.y_test).mean()
    assert right == pytest.approx(float(notes["accuracy_stored"]), abs=1e-4)
    assert right > 0.9
    assert float(notes["accuracy_noisy_stored"]) > 0.8


def test_fine_tuning_learns_and_the_file_holds_what_was_measured(whole, train):
    code, said, err = train(TINY_IMAGENET, "--epochs", "4")
    assert (code, err) == (0, "")
    assert len(said.splitlines()) == 5
    log = log_lines("net.log.jsonl")
    assert log[-1]["train_loss"] < 0.8 * log[0]["train_loss"]
    stated = metadata("net.safetensors")
    assert float(stated["accuracy_float32"]) == pytest.approx(log[-1]["test_accuracy"], abs=1e-4)
    wanted = {"dataset": "Tiny-ImageNet", "network": "efficientnet_lite0", "size": "32", "classes": "4", "lr": "0.01"}
    assert wanted.items() <= stated.items()
    assert (stated["wnids"], json.loads(stated["mean"]), stated["test_images"]) == (",".join(WNIDS), [0.498] * 3, "8")
    weights = load_file("net.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    model = load_model("efficientnet_lite0_tiny_imagenet", weights="net.safetensors")
    assert (model.size, model.labels) == ((32, 32), ["goldfish", "Egyptian cat", "frying pan", "made up"])
    val = mg.read_tiny_imagenet(whole, "val")
    x = torch.stack([model.preprocess(read_image(picture)) for picture in val.pictures])
    right = (model(x).argmax(1).numpy() == val.labels).mean()
    assert right == pytest.approx(float(stated["accuracy_stored"]), abs=1e-4)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_resumed_is_straight_bit_for_bit(train, command):
    epochs = int(command[command.index("--epochs") + 1])
    train(command, "--out", "straight")
    for epoch in range(1, epochs):
        code, out, _ = train(command, "--limit-seconds", "0")
        assert code == 1
        assert f"stopped after epoch {epoch} of {epochs}" in out
        assert not Path("net.safetensors").exists()
        assert len(log_lines("net.log.jsonl")) == epoch
    for _ in range(2):  # the last epoch, and once more: nothing left to do
        assert train(command, "--limit-seconds", "0")[0] == 0
        assert same_tensors(load_file("net.safetensors"), load_file("straight.safetensors"))
        assert metadata("net.safetensors") == metadata("straight.safetensors")
    ours, theirs = (torch.load(f"{name}.checkpoint.pt", weights_only=True) for name in ("net", "straight"))
    assert same_tensors(ours["network"], theirs["network"])
    assert torch.equal(ours["generator"], theirs["generator"])
    for line in (*ours["history"], *theirs["history"]):
        del line["seconds"]
    assert ours["history"] == theirs["history"]  # the accuracy under noise too


def test_a_killed_process_loses_only_what_came_after_its_checkpoint(train, monkeypatch):
    train(SMALL, "--out", "straight")
    epoch = ClassifierTrainer.advance

    def killed(self, watch):
        if len(self.history) == 2:
            raise KeyboardInterrupt
        monkeypatch.setattr(trainer, "SAVE_EVERY", math.inf if self.history else 0.0)
        return epoch(self, watch)

    monkeypatch.setattr(ClassifierTrainer, "advance", killed)
    assert train(SMALL)[0] == 130
    assert len(log_lines("net.log.jsonl")) == 2
    monkeypatch.setattr(ClassifierTrainer, "advance", epoch)
    code, out, _ = train(SMALL)
    assert code == 0
    assert "resuming after epoch 1 of 4" in out
    assert [line["epoch"] for line in log_lines("net.log.jsonl")] == [1, 2, 3, 4]
    assert same_tensors(load_file("net.safetensors"), load_file("straight.safetensors"))


@pytest.mark.parametrize(
    ("option", "stated"),
    [
        (["--lr", "0.2"], "lr 0.1 instead of 0.2"),
        (["--epochs", "5"], "epochs 4 instead of 5"),
        (["--seed", "1"], "seed 0 instead of 1"),
        (["--activation", "relu"], "activation 'softplus' instead of 'relu'"),
        (["--data", "other.npz"], "data '"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_checkpoint_of_other_options_is_refused(train, option, stated):
    save_arrays("other.npz", y_train=ARRAYS.y_train[::-1])
    train(SMALL, "--limit-seconds", "0")
    before = Path("net.checkpoint.pt").read_bytes()
    code, out, err = train(SMALL, *option)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert stated in err
    assert "--restart" in err
    assert Path("net.checkpoint.pt").read_bytes() == before
    code, out, _ = train(SMALL, *option, "--restart", "--limit-seconds", "0")
    assert (code, "stopped after epoch 1" in out) == (1, True)


def test_a_damaged_checkpoint_is_refused(train):
    for junk in (b"junk", b""):
        Path("net.checkpoint.pt").write_bytes(junk)
        code, _, err = train(SMALL)
        assert (code, len(err.splitlines())) == (2, 1)
        assert "--restart" in err
    torch.save({"weights": torch.zeros(2)}, "net.checkpoint.pt")
    assert "--restart" in train(SMALL)[2]


def test_a_restart_killed_at_once_does_not_resume_from_the_old_checkpoint(train, monkeypatch):
    train(SMALL, "--limit-seconds", "0")
    with monkeypatch.context() as patch:
        patch.setattr(ClassifierTrainer, "advance", lambda self, watch: (_ for _ in ()).throw(KeyboardInterrupt))
        assert train(SMALL, "--restart")[0] == 130
    assert "stopped after epoch 1" in train(SMALL, "--limit-seconds", "0")[1]


WRONG = [
    (SMALL, "--data missing.npz", "nothing there"),
    (SMALL, "--data .", "download=True"),
    (SMALL, "--activation relo", "Did you mean 'relu'"),
    (SMALL, "--beta 0", "beta must be a positive"),
    (SMALL, "--noise-sigma -1", "noise_sigma must be a finite number >= 0"),
    (SMALL, "--epochs 0", "epochs must be at least 1"),
    (SMALL, "--batch 0", "batch must be at least 1"),
    (SMALL, "--lr nan", "lr must be a positive finite"),
    (SMALL, "--device nonsense", "device must be one that works here"),
    (SMALL, "--out folder.safetensors", "--out must be a file"),
    (SMALL, "--lr 1e30", "lower --lr"),
    (LIPSCHITZ, "--beta 2", "--beta must be left out for --network lipschitz"),
    (LIPSCHITZ, "--weight-decay 0.1", "belongs to resnet18"),
    (LIPSCHITZ, "--network resnet18", "must be left out for --network resnet18"),
    (LIPSCHITZ, "--network lipshitz", "Did you mean 'lipschitz'"),
    (LIPSCHITZ, "--widths 12;8", "whole numbers with commas between"),
    (LIPSCHITZ, "--widths 12,8,8", "halves the image"),
    (LIPSCHITZ, "--tau -1", "tau must be a positive"),
    (LIPSCHITZ, "--temperature 0", "temperature must be a positive"),
    (TINY_IMAGENET, "--data missing", "nothing there"),
    (TINY_IMAGENET, "--size 16", "size must be at least 32"),
    (TINY_IMAGENET, "--epochs 0", "epochs must be at least 1"),
    (TINY_IMAGENET, "--lr 0", "lr must be a positive"),
    (TINY_IMAGENET, "--out folder.safetensors", "--out must be a file"),
    (TINY_IMAGENET, "--device nonsense", "device must be one that works here"),
]


@pytest.mark.parametrize(("command", "options", "words"), WRONG, ids=[options for _, options, _ in WRONG])
def test_wrong_usage_is_one_line(train, command, options, words):
    Path("folder.safetensors").mkdir()
    code, _, err = train(command, *options.split())
    assert (code, len(err.splitlines())) == (2, 1)
    assert words in err


def test_a_broken_picture_is_named_by_the_command(train, whole):
    shutil.copytree(whole, "own")
    Path("own/train", WNIDS[2], "images", f"{WNIDS[2]}_3.JPEG").write_bytes(b"")
    code, _, err = train(TINY_IMAGENET, "--data", "own")
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"{WNIDS[2]}_3.JPEG" in err


def test_files_lie_beside_each_other(tmp_path):
    names = ["net.v2.safetensors", "net.v2.checkpoint.pt", "net.v2.log.jsonl"]
    assert [path.name for path in training_files(tmp_path / "new" / "net.v2")] == names


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


@pytest.mark.gpu
def test_on_a_gpu_compiled_and_resumed(whole, tmp_path):
    """In processes of their own: the compiler cannot trace the checks of shapes that tests put around functions."""
    code = "from moreaugrad.cli.app import main; main()"
    command = [sys.executable, "-c", code, "train", "tiny-imagenet", "--data", str(whole), *TINY_IMAGENET[3:]]
    command += ["--out", str(tmp_path / "net"), "--limit-seconds", "0", "--device", "cuda"]
    codes = [subprocess.run(command, capture_output=True, check=False).returncode for _ in range(3)]
    assert codes == [1, 1, 0]
    stated = metadata(tmp_path / "net.safetensors")
    model = load_model("efficientnet_lite0_tiny_imagenet", weights=tmp_path / "net.safetensors", device="cuda")
    val = mg.read_tiny_imagenet(whole, "val")
    x = torch.stack([model.preprocess(read_image(picture)) for picture in val.pictures])
    right = (model(x).argmax(1).cpu().numpy() == val.labels).mean()
    assert right == pytest.approx(float(stated["accuracy_stored"]), abs=1e-4)
