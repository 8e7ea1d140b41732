"""A classifier in other units, pixels among them: the same network, weights and pictures; only its input changes."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import moreaugrad as mg
from moreaugrad.model.lipschitz_bounds import LipschitzBounds, lipschitz_bounds
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.custom import view_from_function
from moreaugrad.models.units import in_pixels, to_units

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


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_the_same_photo_has_the_same_logits_in_any_units():
    model = small(dtype=torch.float64)
    found = to_units(model, **IMAGENET)
    x, there = model.preprocess(photo())[None], found.preprocess(photo())[None]
    pixels = torch.tensor(np.asarray(found.crop(photo()))).permute(2, 0, 1).double() / 255
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in IMAGENET.values())
    assert torch.allclose(there[0], (pixels - mean) / std, atol=1e-6)
    assert torch.allclose(found(there), model(x), atol=1e-6)  # the views make inputs of 32 bits
    assert torch.equal(found.std.flatten(), torch.tensor(IMAGENET["std"]))


def test_a_gradient_is_multiplied_by_the_ratio_of_the_units():
    """The chain rule, channel by channel: x = (std'/std) y + ..., so d/dy = (std'/std) d/dx. Exact in 64 bits."""
    model = small(dtype=torch.float64)
    found = to_units(model, **IMAGENET)
    torch.manual_seed(1)
    pixels = torch.rand(3, 3, 8, 8, dtype=torch.float64)
    old, new, ratio = change_units(pixels)
    assert torch.allclose(found(new), model(old), rtol=0, atol=1e-12)
    here, there = (mg.Gradient(each).attribute(x, 2) for each, x in ((model, old), (found, new)))
    assert torch.allclose(there, here * ratio, rtol=1e-11)


def change_units(pixels):
    """The same pictures in the units of `small` and in ImageNet's, and what a unit there is of one here."""
    ends = [torch.tensor(each, dtype=torch.float64).view(3, 1, 1) for each in (MEAN, STD, *IMAGENET.values())]
    mean, std, new_mean, new_std = ends
    return (pixels - mean) / std, (pixels - new_mean) / new_std, new_std / std


@pytest.mark.parametrize("sparse", [False, True])
def test_a_map_is_that_of_converted_parameters(sparse):
    """With one std for all channels: rho goes with 1/std^2, eta and the map with std, a length with 1/std."""
    model = small(mean=(0.5,) * 3, std=(0.5,) * 3, dtype=torch.float64)
    found = to_units(model, mean=(0.4,) * 3, std=(0.2,) * 3)
    ratio = 0.2 / 0.5  # of a unit there, in units here
    torch.manual_seed(2)
    pixels = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    kind, eta = (mg.SparseMoreauGrad, 0.008) if sparse else (mg.MoreauGrad, None)
    weight = {} if eta is None else {"eta": eta}
    converted = {} if eta is None else {"eta": eta / ratio}
    noise = {"budget": 64, "seed": 3}
    there = kind(found, rho=0.7, sigma=0.3, **weight, **noise).explain((pixels - 0.4) / 0.2, target=1)
    same = kind(model, rho=0.7 * ratio**2, sigma=0.3 * ratio, **converted, **noise)
    here = same.explain((pixels - 0.5) / 0.5, target=1)
    assert torch.allclose(there.map, ratio * here.map, rtol=1e-7, atol=1e-12)
    assert torch.allclose(here.delta, ratio * there.delta, rtol=1e-7, atol=1e-12)
    assert torch.allclose(here.envelope, there.envelope, rtol=1e-7)  # the score has no units of length
    if sparse:
        assert bool((there.map == 0).any())
        assert bool((there.map != 0).any())


def test_a_relative_level_of_noise_needs_no_conversion():
    """With one std for all channels the range of an image scales as lengths do."""
    model = small(mean=(0.5,) * 3, std=(0.5,) * 3, dtype=torch.float64)
    found = to_units(model, mean=(0.4,) * 3, std=(0.2,) * 3)
    torch.manual_seed(2)
    pixels = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    here, there = (
        mg.SmoothGrad(net, noise_level=0.1, samples=16, seed=0).attribute(x, target=1)
        for net, x in ((model, (pixels - 0.5) / 0.5), (found, (pixels - 0.4) / 0.2))
    )
    assert torch.allclose(there, here * 0.4, rtol=1e-7)


def test_an_attack_of_converted_size_ends_at_the_same_picture():
    model = small(mean=(0.5,) * 3, std=(0.5,) * 3, dtype=torch.float64)
    found = to_units(model, mean=(0.4,) * 3, std=(0.2,) * 3)
    torch.manual_seed(4)
    pixels = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    options = {"rule": "sign", "steps": 4, "surrogate": None}
    there = mg.TopK(mg.Gradient(found), epsilon=3.0, **options).perturb((pixels - 0.4) / 0.2)
    here = mg.TopK(mg.Gradient(model), epsilon=3.0 * 0.4, **options).perturb((pixels - 0.5) / 0.5)
    assert bool((there.l2 > 0).all())
    assert torch.allclose(there.x * 0.2 + 0.4, here.x * 0.5 + 0.5, atol=1e-7)
    assert torch.allclose(there.pixels_l2, here.pixels_l2, rtol=1e-5)


def test_the_box_is_that_of_black_and_white():
    low, high = to_units(small(), **IMAGENET).box
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in IMAGENET.values())
    assert torch.allclose(low * std + mean, torch.zeros(3, 1, 1), atol=1e-6)
    assert torch.allclose(high * std + mean, torch.ones(3, 1, 1), atol=1e-6)


@pytest.mark.parametrize("way", [IMAGENET, {"mean": (0.0,) * 3, "std": (1.0,) * 3}], ids=["imagenet", "pixels"])
def test_there_and_back_is_the_classifier_as_it_was(way):
    model = small()
    back = to_units(to_units(model, **way), mean=MEAN, std=STD)
    assert back.network is model.network
    assert back.view is model.view
    assert (back.name, back.labels) == (model.name, model.labels)


def test_layers_do_not_pile_up():
    once = to_units(small(), **IMAGENET)
    twice = to_units(in_pixels(small()), **IMAGENET)
    assert len(twice.network) == len(once.network) == 2
    assert torch.equal(twice.network[0].mean, once.network[0].mean)
    assert torch.equal(twice.network[0].std, once.network[0].std)
    assert to_units(once, **IMAGENET) is once


def test_pixels_are_units_like_others():
    model = small()
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(in_pixels(model)(x), to_units(model, mean=(0,) * 3, std=(1,) * 3)(x))


@pytest.mark.parametrize(
    ("units", "says"),
    [
        ({"std": (0.2, 0.0, 0.2)}, "std must be a positive finite number, got 0.0"),
        ({"std": (0.2, -0.1, 0.2)}, "std must be a positive finite number, got -0.1"),
        ({"mean": (0.5,), "std": (0.2,)}, "one value for each of the 3 channels of the model, got 1 and 1"),
        ({"std": (0.2,)}, "as many values, got 3 and 1"),
        ({"mean": (127.0, 127.0, 127.0)}, "scale 0..1"),
    ],
)
def test_impossible_units_are_refused(units, says):
    with pytest.raises(ValueError, match=says):
        to_units(small(), **units)


@pytest.mark.parametrize("change", [to_units, in_pixels])
def test_a_network_that_does_not_know_its_units_is_refused(change):
    with pytest.raises(TypeError, match=r"got Linear; load it by mg.load_model\(name, mean=..., std=...\)"):
        change(nn.Linear(3, 2))
