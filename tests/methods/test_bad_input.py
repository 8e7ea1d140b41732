"""Wrong input is refused before any work, with what must hold, what came, and the way out."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network

LINEAR = nn.Linear(6, 3).eval()
PICTURES = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
X = torch.zeros(2, 6)


def broken(value):
    x = torch.zeros(3, 6)
    x[1, 2] = value
    return x


@pytest.mark.parametrize("name", mg.METHODS)
@pytest.mark.parametrize(
    ("x", "target", "kind", "says"),
    [
        (broken(float("nan")), 0, ValueError, r"finite.*row\(s\) \[1\]"),
        (broken(float("inf")), 0, ValueError, r"finite.*row\(s\) \[1\]"),
        (torch.zeros(6), 0, ValueError, r"batch axis.*\(6,\).*unsqueeze"),
        (torch.zeros(0, 6), 0, ValueError, "at least one image"),
        (torch.zeros(2, 6, dtype=torch.long), 0, TypeError, "floating point.*int64"),
        (np.zeros((2, 6), dtype=np.float32), 0, TypeError, "must be a tensor.*ndarray"),
        ((), 0, ValueError, "empty tuple"),
        ((torch.zeros(2, 3), torch.zeros(1, 3)), 0, ValueError, r"one batch size, got \[2, 1\]"),
        (X, 3, ValueError, r"target must be below 3.*got 3"),
        (X, -4, ValueError, "target must be below 3"),
        (X, [0, 5], ValueError, "target must be below 3.*got 5"),
        (X, [0, 1, 2], ValueError, "one entry per image, got 3 targets for 2 images"),
        (X, torch.tensor([0, 1, 2]), ValueError, "got 3 targets for 2 images"),
        (X, torch.zeros(2), TypeError, "class numbers"),
        (X, (0, 1), ValueError, r"1 index\(es\)|one class per image"),
        (X, "cat", TypeError, "got str"),
        (X, 1.5, TypeError, "got float"),
    ],
)
def test_inputs_and_targets(name, x, target, kind, says):
    options = {"groups": torch.arange(6)} if name.startswith("group") else {}
    model = LINEAR
    options |= {"tau": 0.5} if name == "sparsified_smoothgrad" else {}  # of six entries
    if {"layer", "trained"} & mg.METHODS[name].flags or name == "meaningful_perturbation":  # these want pictures
        model = PICTURES
        x = x.view(len(x), 1, 2, 3) if isinstance(x, torch.Tensor) and x.shape[1:] == (6,) else x
    if name == "mask_network":
        made, _ = initial_mask_network(MaskRecipe(width=8), find_classifier(model), torch.zeros(2, 1, 2, 3))
        options["network"] = made.eval()
    with pytest.raises(kind, match=says):
        mg.METHODS[name](model, **options).attribute(x, target=target)


def test_captums_rule_for_a_missing_target():
    with pytest.raises(ValueError, match=r"target must be given.*\.explain\(\)"):
        mg.MoreauGrad(LINEAR).attribute(X)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"rho": -1.0}, ValueError, "rho must be a finite number >= 0, got -1.0"),
        ({"rho": float("inf")}, ValueError, "rho must be a finite number >= 0"),
        ({"rho": float("nan")}, ValueError, "rho must be a finite number >= 0"),
        ({"rho": "1"}, TypeError, "rho must be a number, got '1'"),
        ({"eta": -0.1}, ValueError, "eta must be a finite number >= 0, got -0.1"),
        ({"eta": torch.tensor([0.1, -1.0])}, ValueError, "eta must be a finite number >= 0"),
        ({"eta": 0.1, "sparsity": 0.1}, ValueError, "eta and sparsity exclude each other"),
        ({"sparsity": 0.0}, ValueError, r"sparsity must be in \(0, 1\]"),
        ({"sparsity": 5}, ValueError, r"sparsity must be in \(0, 1\]"),
        ({"budget": 7}, ValueError, "budget must be at least samples, got budget=7 and samples=8"),
        ({"budget": "fastest"}, ValueError, "Did you mean 'fast'"),
        ({"budget": 1.5}, TypeError, "budget must be a whole number"),
        ({"score": "logits"}, ValueError, "Did you mean 'logit'"),
        ({"smoothing": 0.1}, TypeError, "smoothing must be a Smoothing or None"),
        ({"solver": "papr"}, ValueError, "Did you mean 'paper'"),
        ({"solver": 3}, TypeError, "solver must be None"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 1.7}, TypeError, "seed must be a whole number"),
    ],
)
def test_options(options, kind, says):
    with pytest.raises(kind, match=says):
        mg.SparseMoreauGrad(LINEAR, **options)


def test_eta_of_another_length():
    with pytest.raises(ValueError, match="one per image, got 3 for 2 images"):
        mg.SparseMoreauGrad(LINEAR, eta=torch.tensor([0.1, 0.2, 0.3])).attribute(X, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise_level": 0.1, "sigma": 0.2}, "exclude each other"),
        ({"noise_level": -1.0}, "noise_level must be a positive"),
        ({"sigma": 0.0}, "sigma must be a positive"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
    ],
)
def test_smoothing(options, says):
    with pytest.raises(ValueError, match=says):
        mg.Smoothing(**options)


@pytest.mark.parametrize(
    ("groups", "kind", "says"),
    [
        (torch.zeros(3, 4, dtype=torch.long), ValueError, r"cover the whole input.*got \(3, 4\)"),
        (torch.zeros(5, dtype=torch.long), ValueError, r"cover the whole input.*got \(5,\)"),
        (torch.full((4, 4), -1), ValueError, "16 entries with a negative label"),
        (torch.zeros(4, 4), TypeError, "must hold integers"),
        ("superpixel", ValueError, "'superpixels'"),
        (0, ValueError, "groups must be at least 1"),
        (object(), TypeError, "got object"),
    ],
)
def test_groups(groups, kind, says):
    method = mg.GroupSparseMoreauGrad(lambda v: v.flatten(1).sum(1), groups=groups)
    with pytest.raises(kind, match=says):
        method.attribute(torch.zeros(2, 3, 4, 4))


def test_a_grid_needs_an_image():
    with pytest.raises(ValueError, match=r"label map of shape \(6,\)"):
        mg.GroupSparseMoreauGrad(LINEAR).attribute(X, 0)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), nn.Dropout(0.1), nn.RReLU()], ids=lambda m: type(m).__name__)
def test_a_model_in_training_mode(layer):
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        mg.Gradient(nn.Sequential(layer, nn.Linear(6, 3)).train()).attribute(X, 0)
    harmless = nn.Sequential(nn.Dropout(0.0), nn.ReLU(), nn.Linear(6, 3)).train()
    assert mg.Gradient(harmless).attribute(X, 0).shape == X.shape


def test_training_mode_behind_a_method_a_partial_and_a_closure():
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).train()
    before = net[0].running_mean.clone()
    for hidden in (net.forward, functools.partial(net), lambda v: 2 * net(v), Wrapper(net)):
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            mg.MoreauGrad(hidden).attribute(torch.randn(2, 6), 0)
    assert torch.equal(net[0].running_mean, before)


class Wrapper:
    def __init__(self, net):
        self.net = net

    def __call__(self, v):
        return self.net(v)


def test_batch_statistics_are_refused_in_evaluation_too():
    net = nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)).eval()
    with pytest.raises(ValueError, match="track_running_stats"):
        mg.Gradient(net).attribute(X, 0)


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda v: (v > 0).float(), "must be differentiable"),
        (lambda v: LINEAR(v.detach()), "gradient"),
        (lambda v: LINEAR(v.detach()).detach(), "must be differentiable"),
        (lambda v: LINEAR(v)[:1], "one row per input row"),
        (lambda v: LINEAR(v) * float("nan"), "score must be finite"),
        (lambda v: LINEAR(v) + v.abs().sqrt().sum(1, keepdim=True), "gradient must be finite"),
    ],
)
def test_a_model_that_cannot_be_explained(score, says):
    with pytest.raises(ValueError, match=says):
        mg.MoreauGrad(score, smoothing=None).attribute(X, 0, internal_batch_size=2)


def test_smoothgrad_without_noise():
    with pytest.raises(ValueError, match="use the method `gradient`"):
        mg.SmoothGrad(LINEAR, None)


def test_a_probability_needs_several_classes():
    with pytest.raises(ValueError, match="needs several class scores"):
        mg.Gradient(lambda v: LINEAR(v)[:, :1], score="prob").attribute(X, 0)


def test_a_model_that_returns_no_tensor():
    with pytest.raises(TypeError, match=r"must return a tensor or an object with \.logits, got tuple"):
        mg.Gradient(lambda v: (LINEAR(v),)).attribute(X, 0)


def test_unknown_names():
    with pytest.raises(ValueError, match="Did you mean 'moreau'"):
        mg.METHODS["morau"]
    with pytest.raises(KeyError):
        mg.METHODS["morau"]
    assert "morau" not in mg.METHODS
    with pytest.raises(ValueError, match="efficientnet_lite0"):
        mg.load_model("efficientnet_lite")
