"""Functions that make maps, as methods."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg

X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        return nn.Sequential(*layers).eval()


def input_times_gradient(model, x, target, power=1):
    """The gradient times the input."""
    x = x.clone().requires_grad_()
    model(x).gather(1, target[:, None]).sum().backward()  # leaves gradients at the weights
    return x.detach() ** power * x.grad


def noise_map(model, x, target):
    return np.random.standard_normal(x.shape[2:])[None] + torch.rand(x.shape[2:]).numpy()  # noqa: NPY002


def test_the_map_is_the_functions_and_the_model_stays_as_it_was(net):
    kind = mg.from_function(input_times_gradient, power=2)
    found = kind(net).explain(X)
    grad = mg.Gradient(net).attribute(X, net(X).argmax(1))
    torch.testing.assert_close(found.map, X**2 * grad)
    assert found.gradients.tolist() == [1, 1]
    assert all(weight.grad is None for weight in net.parameters())
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert (kind.__doc__, found.method) == ("The gradient times the input.", "input_times_gradient")


def test_random_numbers_of_any_source_follow_the_seed(net):
    kind = mg.from_function(noise_map, random=True)
    one, same, other = (kind(net, seed=seed).attribute(X, 1) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert torch.equal(one[0], one[1])  # each image alone, so in any batch
    assert not torch.equal(one, other)
    assert one.shape == (2, 1, 8, 8)


def test_small_maps_are_enlarged_and_others_refused(net):
    flat = mg.from_function(lambda model, x, target: torch.ones(len(x), 4, 4))(net).attribute(X, 1)
    assert torch.equal(flat, torch.ones(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"one map per input.*got \(1, 5, 8, 8\)"):
        mg.from_function(lambda model, x, target: torch.ones(len(x), 5, 8, 8))(net).attribute(X, 1)
    with pytest.raises(TypeError, match="tensor or an array, got str"):
        mg.from_function(lambda model, x, target: "map")(net).attribute(X, 1)


def test_maps_of_one_channel_of_other_inputs_than_images():
    film, row = torch.rand(2, 3, 4, 5, 6), torch.rand(2, 7)
    score = mg.from_function(lambda model, x, target: x.sum(1, keepdim=True))
    assert score(lambda x: x.flatten(1)).attribute(film, 1).shape == (2, 1, 4, 5, 6)
    with pytest.raises(ValueError, match=r"one map per input.*got \(1, 1\)"):
        score(lambda x: x).attribute(row, 1)


def test_what_is_no_such_function_is_refused(net):
    with pytest.raises(TypeError, match="the model, the inputs and the target"):
        mg.from_function(lambda model, x: x)
    with pytest.raises(TypeError, match="no option 'powr'; did you mean 'power'"):
        mg.from_function(input_times_gradient, powr=2)
    with pytest.raises(ValueError, match="score must be 'logit'"):
        mg.from_function(input_times_gradient)(net, score="prob")
    with pytest.raises(ValueError, match="additional_forward_args must be left out"):
        mg.from_function(input_times_gradient)(net).attribute(X, 1, torch.ones(2))


def test_a_method_of_a_function_can_be_stored_and_named(net):
    method = mg.from_function(input_times_gradient, name="input_times_gradient_example")(net, power=3)
    again = pickle.loads(pickle.dumps(method))
    assert torch.equal(again.attribute(X, 1), method.attribute(X, 1))
    assert torch.equal(mg.explain(net, X, "input_times_gradient_example", target=1, power=3).map, again.attribute(X, 1))


def test_score_cam_of_torchcam(net):
    methods = pytest.importorskip("torchcam.methods", reason="torchcam is not installed")

    def score_cam(model, x, target, layer="0"):
        with methods.ScoreCAM(model, target_layer=layer) as explainer:
            scores = model(x)
            return explainer(target.tolist(), scores)[0]

    found = mg.from_function(score_cam)(net).attribute(X, 1)
    with methods.ScoreCAM(net, target_layer="0") as explainer:
        wanted = torch.cat([explainer([1], net(X[i : i + 1]))[0] for i in range(2)])
    assert wanted.std() > 0
    torch.testing.assert_close(found[:, 0], wanted, rtol=1e-4, atol=1e-5)
