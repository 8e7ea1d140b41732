"""The weights that come with the package say what they are said to say."""

import json
from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

import moreaugrad as mg

FILE = files("moreaugrad.models") / "weights" / "resnet18_softplus_cifar10.safetensors"
LIMIT = 25_000_000  # bytes of all shipped weights


def test_what_the_file_says_of_itself_is_what_the_model_uses():
    with safe_open(str(FILE), "pt") as stored:
        notes = stored.metadata()
        assert {stored.get_slice(name).get_dtype() for name in stored.keys()} <= {"F16", "I64"}  # noqa: SIM118
    model = mg.load_model("resnet18_softplus_cifar10")
    assert (json.loads(notes["mean"]), json.loads(notes["std"])) == (list(model.view.mean), list(model.view.std))
    assert {type(each).__name__ for each in model.modules() if "ReLU" in type(each).__name__} == set()
    assert {each.beta for each in model.modules() if isinstance(each, torch.nn.Softplus)} == {float(notes["beta"])}
    assert next(model.parameters()).dtype == torch.float32


def test_all_weights_together_stay_small():
    folder = files("moreaugrad.models") / "weights"
    assert sum(len(each.read_bytes()) for each in folder.iterdir()) < LIMIT


@pytest.mark.data_heavy
def test_accuracy_on_cifar10(data):
    folder = data("cifar10")
    strips = sorted((folder / "test").glob("*.webp"))
    pixels = np.concatenate([np.asarray(Image.open(each).convert("RGB")).reshape(-1, 32, 32, 3) for each in strips])
    labels = torch.from_numpy(np.load(folder / "test_labels.npy")).long()
    model = mg.load_model("resnet18_softplus_cifar10")
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - model.mean) / model.std
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(250), labels.split(250), strict=True))
    assert len(labels) == 5000
    assert right / len(labels) >= 0.925
