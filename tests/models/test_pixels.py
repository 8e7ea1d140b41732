"""A classifier in units of pixels: the same network, weights and pictures; only the units of its input change."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import moreaugrad as mg
from moreaugrad.model.lipschitz_bounds import LipschitzBounds, lipschitz_bounds
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.custom import view_from_function
from moreaugrad.models.pixels import in_pixels

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)


def photo(width=20, height=14, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def small(fit="cover", mean=MEAN, std=STD, dtype=torch.float32):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64 * len(mean), 9), nn.Tanh(), nn.Linear(9, 4)).to(dtype)
    view = CentreCrop((8, 8), (8, 8), mean, std, fit=fit)
    return Classifier(network.eval().requires_grad_(False), view, "small", ["a", "b", "c", "d"])


@pytest.mark.parametrize("fit", ["cover", "squash", "contain", "one channel"])
def test_it_sees_the_same_picture_and_says_the_same(fit):
    model = small(mean=(0.5,), std=(0.25,)) if fit == "one channel" else small(fit)
    found = in_pixels(model)
    x, pixels = model.preprocess(photo())[None], found.preprocess(photo())[None]
    assert np.array_equal(np.asarray(found.crop(photo())), np.asarray(model.crop(photo())))
    if fit == "one channel":
        assert pixels.shape == (1, 1, 8, 8)
    else:
        seen = torch.tensor(np.asarray(model.crop(photo()))).permute(2, 0, 1) / 255
        assert torch.allclose(pixels[0], seen, atol=1e-6)  # borders of "contain" are the mean, to 8 bits
    assert torch.allclose(found(pixels), model(x), atol=1e-5)
    assert (found.name, found.labels, found.size) == (model.name, model.labels, model.size)


def test_lengths_and_box_are_those_of_pixels():
    found = in_pixels(small())
    assert torch.equal(found.mean, torch.zeros(3, 1, 1))
    assert torch.equal(found.std, torch.ones(3, 1, 1))
    assert [end.flatten().tolist() for end in found.box] == [[0.0] * 3, [1.0] * 3]


def test_a_map_follows_the_chain_rule():
    """The gradient by pixels is the gradient by the network's input over std."""
    model = small(dtype=torch.float64)
    found = in_pixels(model)
    x, pixels = model.preprocess(photo())[None], found.preprocess(photo())[None]
    inner = mg.METHODS["gradient"](model).attribute(x, 2)
    assert torch.allclose(mg.METHODS["gradient"](found).attribute(pixels, 2), inner / model.std, rtol=1e-5)


def test_a_function_of_ones_own_is_undone():
    def preprocess(picture):
        values = torch.tensor(np.asarray(picture.resize((8, 8))), dtype=torch.float32).permute(2, 0, 1) / 255
        return (values - 0.5) / 0.125

    model = small()
    model.view = view_from_function(preprocess)
    pixels = in_pixels(model).preprocess(photo())
    plain = torch.tensor(np.asarray(photo().resize((8, 8)))).permute(2, 0, 1) / 255
    assert torch.allclose(pixels, plain, atol=1e-6)


def test_one_in_pixels_stays_as_it_is():
    found = in_pixels(small())
    assert in_pixels(found) is found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_precision_is_that_of_the_network(dtype):
    found = in_pixels(small(dtype=dtype))
    pixels = found.preprocess(photo())[None]
    assert pixels.dtype == found(pixels).dtype == dtype


def test_a_network_without_parameters_keeps_its_precision():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.arange(192.0 * 2, dtype=torch.float64).view(2, 192) / 100)

        def forward(self, x):
            return x.flatten(1) @ self.weight.T

    model = Classifier(Fixed().eval(), CentreCrop((8, 8), (8, 8), MEAN, STD), "fixed")
    found = in_pixels(model)
    pixels = found.preprocess(photo())[None]
    assert pixels.dtype == torch.float64
    assert torch.allclose(found(pixels), model(model.preprocess(photo())[None]), rtol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_the_network_is_shared_and_left_alone(training):
    model = small().train(training)
    weights = [parameter.data_ptr() for parameter in model.parameters()]
    found = in_pixels(model)
    assert [parameter.data_ptr() for parameter in found.parameters()] == weights
    assert {module.training for module in (*found.modules(), *model.modules())} == {training}
    assert list(found.state_dict()) == [f"network.1.{name}" for name in model.network.state_dict()]


def test_constants_are_those_of_pixels():
    """Every length is divided by the smallest std, of which exactly one channel makes the most."""
    model = small(dtype=torch.float64)
    inner, found = lipschitz_bounds(model, of=1), lipschitz_bounds(in_pixels(model), of=1)
    assert found.lipschitz == pytest.approx(inner.lipschitz / 0.2, rel=1e-6)
    assert found.curvature == pytest.approx(inner.curvature / 0.2**2, rel=1e-6)
    layer = in_pixels(model).network[0]
    moved = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    moved[:, 0] = 1
    longest = (layer(moved) - layer(0 * moved)).norm() / moved.norm()
    assert 0 <= layer.lipschitz_bounds().lipschitz / float(longest) - 1 < 1e-9
    assert isinstance(layer.lipschitz_bounds(), LipschitzBounds)
