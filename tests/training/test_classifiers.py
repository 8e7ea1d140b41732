"""Trainers of classifiers: schedules, single steps written out, accuracy, random states."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from training_data import ARRAYS, CPU, WNIDS, assert_first_step, make_tiny_imagenet, same_tensors, save_arrays

import moreaugrad as mg
from moreaugrad.data.arrays import Arrays
from moreaugrad.training import classifiers
from moreaugrad.training.augment import crop_and_flip, normalise, zoom_and_flip
from moreaugrad.training.classifiers import (
    ClassifierTrainer,
    accuracy,
    add_noise,
    train_tiny_imagenet,
)
from moreaugrad.training.recipes import FineTuningRecipe, LipschitzRecipe, ResNetRecipe
from moreaugrad.training.trainer import TrainingJob

TINY = ResNetRecipe(width=2, batch=32, epochs=2, lr=0.1)


def test_rate_rises_then_falls_to_zero():
    recipe = ResNetRecipe(epochs=100, lr=0.2)
    assert recipe.rate(0) == 0
    assert recipe.rate(2.5) == pytest.approx(0.1)
    assert recipe.rate(5) == pytest.approx(0.2)
    assert recipe.rate(52.5) == pytest.approx(0.1)
    assert recipe.rate(100) == pytest.approx(0, abs=1e-12)
    assert ResNetRecipe(epochs=1).rate(0.5) == pytest.approx(0.2)
    assert ResNetRecipe(epochs=1, warm_up=0).rate(0) == pytest.approx(0.2)


def test_training_is_a_function_of_the_seed_and_leaves_random_states():
    torch.rand(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    runs = []
    for seed in (0, 0, 1):
        one = ClassifierTrainer(ResNetRecipe(width=2, batch=32, epochs=1, seed=seed), ARRAYS, CPU)
        one.advance()
        runs.append(one.network.state_dict())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002
    assert same_tensors(runs[0], runs[1])
    assert not same_tensors(runs[0], runs[2])


def test_one_step_is_the_written_out_one():
    """One batch, warm-up none: w - lr (1 + m) (gradient + decay w), the first step of Nesterov."""
    recipe = ResNetRecipe(width=2, batch=128, epochs=1, warm_up=0, weight_decay=0.1)
    training, twin = (ClassifierTrainer(recipe, ARRAYS, CPU) for _ in range(2))
    order = torch.randperm(128, generator=twin.generator)
    x = normalise(crop_and_flip(twin.x[order], twin.generator), recipe.scale)
    loss = torch.nn.functional.cross_entropy(twin.network.train()(x), twin.y[order])
    assert_first_step(training, twin, loss, rtol=1e-4, atol=1e-6)


def test_one_step_of_fine_tuning_is_the_written_out_one():
    """One batch, warm-up none: w - lr (1 + m) (gradient + decay w), on labels of which a tenth is spread."""
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (8, 64, 64, 3), dtype=np.uint8), (np.arange(8) % 4).astype(np.uint8)
    recipe = FineTuningRecipe(wnids=WNIDS, size=32, batch=8, epochs=1, warm_up=0, weight_decay=0.1)
    training, twin = (ClassifierTrainer(recipe, Arrays(x, y, x[:4], y[:4]), CPU) for _ in range(2))
    order = torch.randperm(8, generator=twin.generator)
    seen = normalise(zoom_and_flip(twin.x[order], twin.generator, 32), FineTuningRecipe.scale)
    logits = twin.network.train()(seen).log_softmax(1)
    loss = -(0.9 * logits.gather(1, twin.y[order][:, None])[:, 0] + 0.1 * logits.mean(1)).mean()
    assert_first_step(training, twin, loss, rtol=1e-3, atol=1e-5)


def test_the_loss_is_that_of_hotter_logits():
    """One batch, one step: the loss written out."""
    recipe = LipschitzRecipe(widths=(6,), depth=1, epochs=1, batch=128, temperature=7.0)
    training, twin = (ClassifierTrainer(recipe, ARRAYS, CPU) for _ in range(2))
    order = torch.randperm(128, generator=twin.generator)
    x = crop_and_flip(twin.x[order], twin.generator).permute(0, 3, 1, 2) / 255 - 0.5
    logits = 7 * twin.network(x).detach()
    wanted = (logits.logsumexp(1) - logits[torch.arange(128), twin.y[order]]).mean()
    assert training.advance()["train_loss"] == pytest.approx(float(wanted), abs=1e-5)


def test_a_network_that_cannot_be_compiled_is_trained_as_it_is(monkeypatch, caplog):
    def broken(network, **options):
        def forward(x):
            network(x)  # moves the statistics of batch norm before it fails
            raise RuntimeError("no compiler\nhere")

        return forward

    plain = ClassifierTrainer(TINY, ARRAYS, CPU)
    monkeypatch.setattr(torch, "compile", broken)
    training = ClassifierTrainer(TINY, ARRAYS, CPU, compile=True)
    assert "cannot be compiled (RuntimeError: no compiler)" in caplog.text
    plain.advance()
    training.advance()
    assert same_tensors(plain.network.state_dict(), training.network.state_dict())


def test_accuracy_counts_over_several_calls():
    network = ClassifierTrainer(TINY, ARRAYS, CPU).network
    x, y = torch.from_numpy(np.tile(ARRAYS.x_test, (10, 1, 1, 1))), torch.from_numpy(np.tile(ARRAYS.y_test, 10)).long()
    assert accuracy(network, x, y, TINY) == accuracy(network, x[:60], y[:60], TINY)
    with torch.no_grad():
        assert accuracy(network, x, network.eval()(normalise(x, ResNetRecipe.scale)).argmax(1), TINY) == 1


def test_accuracy_under_noise_is_one_draw_per_image():
    """A network that knows no images but the size of the noise."""

    class Loud(nn.Module):
        def forward(self, x):
            loud = (x.flatten(1).std(1) > 1).double()
            return torch.stack([1 - loud, loud], 1)

    x, y = torch.from_numpy(ARRAYS.x_test), torch.ones(60, dtype=torch.long)
    recipe, noise = LipschitzRecipe(noise_sigma=3.0), torch.Generator().manual_seed(0)
    assert accuracy(Loud(), x, y, recipe) == 0
    assert accuracy(Loud(), x, y, recipe, noise) == 1
    drawn = add_noise(torch.zeros(50, 3, 32, 32), 3.0, noise)
    assert float(drawn.std()) == pytest.approx(3, rel=0.01)
    assert not torch.equal(drawn[0], drawn[1])
    assert abs(float((drawn[0] * drawn[1]).mean())) < 0.9  # 5 standard deviations


def test_defaults_depend_on_the_device(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(classifiers, "_train", lambda recipe, *rest: found.append(recipe) or 0)
    monkeypatch.setattr(classifiers, "best_device", torch.device)
    data = make_tiny_imagenet(tmp_path / "data", train=1)
    for device in ("cpu", "cuda"):
        train_tiny_imagenet({"batch": None, "lr": None}, TrainingJob(data, device=device), mg)
    assert [recipe.batch for recipe in found] == [64, 256]
    assert found[1].lr == pytest.approx(4 * found[0].lr)
    assert found[0].wnids == WNIDS


RECIPES = {
    "resnet18": "ResNetRecipe(width=8, batch=32, epochs=6, lr=0.1, noise_sigma=0.1)",
    "lipschitz": "LipschitzRecipe(widths=(12, 8), batch=32, epochs=8, temperature=5.0, noise_sigma=0.25)",
}


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_on_a_gpu_compiled_and_resumed(recipe, tmp_path, monkeypatch):
    """In a process of its own: the compiler cannot trace the checks of shapes that tests put around functions."""
    monkeypatch.chdir(tmp_path)
    save_arrays("tiny.npz")
    script = f"""
import torch
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.training.classifiers import ClassifierTrainer
from moreaugrad.training.recipes import LipschitzRecipe, ResNetRecipe
cuda, arrays, recipe = torch.device("cuda"), read_cifar10("tiny.npz"), {recipe}
first = ClassifierTrainer(recipe, arrays, cuda, compile=True)
assert first.forward is not first.network, "not compiled"
for _ in range(recipe.epochs // 2):
    first.advance()
torch.save(first.state(), "state.pt")
second = ClassifierTrainer(recipe, arrays, cuda)
second.load(torch.load("state.pt", map_location=cuda, weights_only=True))
while not second.finished:
    second.advance()
assert second.history[-1]["test_accuracy"] > 0.9, second.history
if recipe.network == "lipschitz":
    stored = recipe.build()
    stored.load_state_dict(recipe.stored_state(second.network))
    assert 0.99 < lipschitz_bounds(stored, of=0).lipschitz <= 1 + 1e-9
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
