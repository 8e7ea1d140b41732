"""What is explained in what a network returns: functions of it, and parts of tuples, dicts and objects."""

import pickle
from collections import namedtuple
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import moreaugrad as mg
from moreaugrad.models.classifier import CentreCrop

Pair = namedtuple("Pair", ["first", "scores"])


@dataclass
class Found:
    scores: Tensor
    note: str = "not a tensor"


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            nn.Linear(6, 4),
        ).eval()


@pytest.fixture
def x():
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Returning(nn.Module):
    """A network that returns its scores in some structure."""

    def __init__(self, net, structure):
        super().__init__()
        self.net, self.structure, self.training = net, structure, net.training

    def forward(self, x):
        return self.structure(self.net(x))


STRUCTURES = {
    "tuple": (lambda out: (out.mean(1), out), [1, -1, lambda found: found[1]]),
    "list": (lambda out: [out, 2 * out], [0]),
    "named tuple": (lambda out: Pair(out.mean(1), out), ["scores", 1]),
    "dataclass": (Found, ["scores"]),
    "dict": (lambda out: {"scores": out, "note": "text"}, ["scores"]),
    "nested": (lambda out: {"heads": [{"scores": out}]}, [lambda found: found["heads"][0]["scores"]]),
}


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_parts_of_structures_are_explained(name, precision, net, x):
    structure, outputs = STRUCTURES[name]
    wanted = mg.SmoothGrad(net, samples=4, precision=precision).attribute(x, target=2)
    for output in outputs:
        method = mg.SmoothGrad(Returning(net, structure), samples=4, output=output, precision=precision)
        assert torch.equal(method.attribute(x, target=2), wanted)


def test_preparing_folds_batch_norm_whatever_the_structure(net, x):
    (engine,) = mg.prepare(Returning(net, lambda out: {"a": [out], "b": Found(out)}), x)._engines.values()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in engine.body.modules())


class Early(nn.Module):
    """Returns what goes into the batch norm beside the scores: folding would change it."""

    def __init__(self, net):
        super().__init__()
        self.net, self.training = net, net.training

    def forward(self, x):
        early = self.net[0](x)
        return self.net[1:](early), early


def test_preparing_looks_at_every_part_of_the_output(net, x):
    net[1].running_var += 1
    (engine,) = mg.prepare(Early(net), x)._engines.values()
    torch.testing.assert_close(engine((x,))[1], net[0](x))


class Quadratic(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, x):
        return x @ self.matrix.T


@pytest.mark.parametrize("solver", ["proximal_gradient", "dual_averaging"])
def test_a_function_of_the_output_has_the_envelope_of_its_own_formula(solver):
    """|Ax|^2 / 2 has the Hessian H = A'A and the envelope's gradient (1 + rho H)^-1 H x, linear in x."""
    random = torch.Generator().manual_seed(0)
    a, x = torch.randn(6, 4, generator=random).double() / 3, torch.randn(2, 4, generator=random).double()
    rho, h = 0.5, a.T @ a
    slope = torch.linalg.solve(torch.eye(4) + rho * h, h)
    noise = {"smoothing": mg.Smoothing(sigma=0.1, fixed=True)} if solver == "dual_averaging" else {"noise_level": 0}
    method = mg.MoreauGrad(
        Quadratic(a), rho=rho, score=lambda out: out.square().sum(1) / 2, solver=solver, budget=1000, **noise
    )
    torch.testing.assert_close(method.attribute(x), x @ slope, atol=1e-4, rtol=1e-3)
    if solver == "proximal_gradient":
        moving = x.clone().requires_grad_()
        (found,) = torch.autograd.grad(method.attribute(moving, create_graph=True)[:, 1].sum(), moving)
        torch.testing.assert_close(found, slope[1].expand(2, -1), atol=1e-4, rtol=1e-3)


def test_the_function_works_on_rows_of_any_chunk(net, x):
    """Whatever is run together, a mask that broadcasts over the rows gives the same maps."""
    mask = torch.tensor([1.0, 0.0, -2.0, 0.0])
    method = mg.SmoothGrad(net, samples=6, score=lambda out: (out * mask).sum(1))
    whole = method.attribute(x)
    for rows in (1, 2, 5, 18):
        torch.testing.assert_close(method.attribute(x, internal_batch_size=rows), whole)
    one, two = (mg.SmoothGrad(net, samples=6).attribute(x, target=target) for target in (0, 2))
    torch.testing.assert_close(whole, one - 2 * two)


REFUSED = {
    "a batch mean": ({"score": lambda out: out.mean()}, None, r"one row per row .* shape \(\)"),
    "a sum over rows": ({"score": lambda out: out.sum(0)}, None, r"one row per row .* for 1 row"),
    "a mask of a batch": ({"score": lambda out: (out * torch.ones(5, 4)).sum(1)}, None, "shape .5,. for 1 row"),
    "a mask for no chunk": ({"score": lambda out: out + torch.ones(1, 5)}, 1, "any number of rows, got 1"),
    "a number": ({"score": lambda out: 1.0}, None, "score must return a tensor .* got float"),
    "no tensor": ({"score": lambda out: (out,)}, None, "score must return a tensor .* got tuple"),
    "a target too many": ({"score": lambda out: out[:, 1]}, 2, "target must be left out"),
    "a target too few": ({"score": lambda out: 2 * out}, None, "target must be given"),
    "a part of a tensor": ({"output": 0}, 1, "one tensor.*leave output out"),
    "a constant": ({"score": lambda out: out.detach()[:, 1]}, None, "differentiable"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_a_function_must_return_is_said(given, net, x):
    options, target, words = REFUSED[given]
    with pytest.raises((TypeError, ValueError), match=words):
        mg.Gradient(net, **options).attribute(x[:1], target=target)


def test_missing_parts_are_named(net, x):
    inside = Returning(net, lambda out: {"scores": out, "boxes": out})
    with pytest.raises(TypeError, match="output="):
        mg.Gradient(inside).attribute(x, target=1)
    with pytest.raises(ValueError, match=r"'score'.*\['scores', 'boxes'\]"):
        mg.Gradient(inside, output="score").attribute(x, target=1)
    with pytest.raises(ValueError, match=r"2 for a tuple with 2 part"):
        mg.Gradient(Returning(net, lambda out: (out, out)), output=2).attribute(x, target=1)


@pytest.mark.parametrize("options", [{"score": 3}, {"score": "logits"}, {"output": True}, {"output": 1.5}])
def test_options_are_checked_before_the_network_runs(options, net):
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(options))} must be"):
        mg.Gradient(net, **options)


def test_who_asks_the_network_itself_refuses_other_readings(net, x):
    """An attack or a certificate would speak of another function than the map does."""
    smooth = mg.MoreauGrad(net, smoothing=mg.Smoothing(sigma=0.5))
    for method in (replace(smooth, score=lambda out: out[:, 1]), replace(smooth, output=lambda out: out)):
        with pytest.raises(ValueError, match="certify asks the network itself"):
            mg.certify(method, x)
        with pytest.raises(ValueError, match="TopK asks the network itself"):
            mg.TopK(method, epsilon=1.0)


def difference(out, first, second):
    return out[:, first] - out[:, second]


def test_methods_with_a_function_can_be_sent_elsewhere_and_results_name_it(net, x, tmp_path):
    method = mg.Gradient(net, score=partial(difference, first=1, second=2))
    assert torch.equal(pickle.loads(pickle.dumps(method)).attribute(x), method.attribute(x))
    named = mg.Gradient(net, output=Found, score=lambda found: difference(found.scores, 1, 2)).explain(x)
    assert torch.equal(named.map, method.attribute(x))
    stored = mg.Explanation.load(named.save(tmp_path / "map")).options
    assert stored["score"].endswith("<lambda>")
    assert stored["output"].endswith("Found")


@pytest.mark.parametrize(
    "bounded", [partial(mg.Clipped, low=-0.1, high=0.1), mg.Votes, partial(mg.Odds, centre=0.0, scale=1.0)]
)
def test_scores_with_a_range_find_the_logits(bounded, net, x):
    assert torch.equal(bounded(Returning(net, lambda out: {"logits": out}))(x), bounded(net)(x))
    with pytest.raises(TypeError, match="got tuple"):
        bounded(Returning(net, lambda out: (out,)))(x)


def test_names_of_classes_wait_for_the_part_that_has_them(net):
    names = ["one", "two", "three", "four"]
    pair = mg.Classifier(Returning(net, lambda out: (out, out)), CentreCrop((8, 8), (8, 8)), "pair", names)
    pair.check()
    with pytest.raises(ValueError, match="got 3 labels for 4 outputs"):
        mg.Classifier(net, CentreCrop((8, 8), (8, 8)), "net", names[:3]).check()


def test_photos_of_a_network_with_a_structure(net):
    """`mg.explain` gives such a network its preprocessing, and passes on what it returns."""
    inside = Returning(net, lambda out: {"scores": out})
    photo = Image.radial_gradient("L").convert("RGB").resize((8, 8))

    def preprocess(picture):
        return torch.tensor(np.asarray(picture.resize((8, 8)))).permute(2, 0, 1) / 255

    options = {"method": "gradient", "preprocess": preprocess}
    found = mg.explain(inside, photo, output="scores", target=1, **options)
    assert torch.equal(found.map, mg.explain(net, photo, target=1, **options).map)
    by_function = mg.explain(inside, photo, score=lambda out: out["scores"][:, 1], **options)
    assert torch.equal(found.map, by_function.map)


def test_a_folded_copy_must_give_every_part_of_the_output(x):
    """Folding batch norm changes the features before it; a score of these must not follow."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
            self.norm.running_var.fill_(9.0)

        def forward(self, x):
            features = self.conv(x)
            return SimpleNamespace(logits=self.head(self.norm(features).relu().mean((2, 3))), features=features)

    torch.manual_seed(0)
    model = Pair().eval()
    options = {"score": lambda out: out.features.square().mean((1, 2, 3)), "samples": 4}
    found, plain = (mg.SmoothGrad(each, **options).attribute(x) for each in (model, model.forward))
    torch.testing.assert_close(found, plain)
