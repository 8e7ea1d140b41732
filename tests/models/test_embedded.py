"""EfficientNet-Lite0 with the classes of Tiny-ImageNet: its rows, its files, its labels."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from training_data import NAMES, WNIDS, noisy, same_tensors

from moreaugrad.models import embedded, load_model
from moreaugrad.training.recipes import FineTuningRecipe, initial_network


def test_the_first_network_is_imagenets_cut_down():
    whole, cut = load_model("efficientnet_lite0"), load_model("efficientnet_lite0_tiny_imagenet")
    assert (cut.size, len(cut.labels), cut.labels[0], cut.labels[-1]) == (
        (128, 128),
        200,
        "goldfish",
        whole.labels[988],
    )
    rows = list(map(int, embedded.TINY_IMAGENET.split()))
    x = torch.randn(2, 3, 128, 128)
    torch.testing.assert_close(cut(x), whole(x)[:, rows])
    picture = noisy(1, 0)
    assert cut.crop(picture).size == (128, 128)
    np.testing.assert_array_equal(cut.crop(picture), picture.resize((128, 128), Image.Resampling.BICUBIC))
    assert (cut.view.mean, cut.view.std) == (whole.view.mean, whole.view.std)


def test_the_classes_are_those_of_the_data(data):
    table = data("tiny_imagenet") / "classes.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert embedded.tiny_imagenet_wnids() == [row["wnid"] for row in rows]


def test_rows_of_known_classes_are_imagenets_and_others_random():
    recipe = FineTuningRecipe(wnids=WNIDS)
    first, again = initial_network(recipe), initial_network(recipe)
    other = initial_network(FineTuningRecipe(wnids=WNIDS, seed=1))
    last = load_model("efficientnet_lite0").network.classifier
    for row, index in enumerate((1, 285, 567)):
        assert torch.equal(first.classifier.weight[row], last.weight[index])
        assert first.classifier.bias[row] == last.bias[index]
    assert same_tensors(first.state_dict(), again.state_dict())
    assert not torch.equal(first.classifier.weight[3], other.classifier.weight[3])
    assert first.classifier.weight[3].isfinite().all()
    assert embedded.class_names(WNIDS, NAMES) == ["goldfish", "Egyptian cat", "frying pan", "made up"]


def test_weights_that_do_not_fit(tmp_path):
    name = "efficientnet_lite0_tiny_imagenet"
    state = {key: tensor.contiguous() for key, tensor in load_model(name).network.state_dict().items()}
    save_file(state, tmp_path / "good.safetensors")  # says nothing of itself: the 200 classes at 128 pixels
    model = load_model(name, weights=tmp_path / "good.safetensors")
    assert (model.size, len(model.labels)) == ((128, 128), 200)
    save_file(load_model("efficientnet_lite0").network.state_dict(), tmp_path / "imagenet.safetensors")
    with pytest.raises(ValueError, match=r"classifier.weight \(1000, 1280\) for \(200, 1280\)"):
        load_model(name, weights=tmp_path / "imagenet.safetensors")
    save_file(load_model("resnet18_softplus").network.state_dict(), tmp_path / "resnet.safetensors")
    with pytest.raises(ValueError, match="weights must fit the model"):
        load_model(name, weights=tmp_path / "resnet.safetensors")
    for stated in ({"size": "large"}, {"size": "8"}, {"labels": "a, b"}, {"labels": "3"}, {"labels": "[]"}):
        save_file(state, tmp_path / "stated.safetensors", stated)
        with pytest.raises(ValueError, match=r"must say their size in pixels, at least 32, and their labels"):
            load_model(name, weights=tmp_path / "stated.safetensors")
    save_file(state, tmp_path / "stated.safetensors", {"labels": '["a", "b"]'})
    with pytest.raises(ValueError, match=r"\(200, 1280\) for \(2, 1280\)"):
        load_model(name, weights=tmp_path / "stated.safetensors")


def test_random_weights_and_own_labels():
    model = load_model("efficientnet_lite0_tiny_imagenet", weights="random", labels=["a", "b"])
    assert model(torch.zeros(1, 3, 128, 128)).shape == (1, 2)
    with pytest.raises(ValueError, match="2 labels for 200 outputs"):
        load_model("efficientnet_lite0_tiny_imagenet", labels=["a", "b"])
