"""What a public object is for: the call in which it does its work, down to a map where it has a part in one."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from captum.attr import Saliency
from skimage.segmentation import slic  # noqa: F401 - the first superpixels load it, and it sets warning filters then
from torch import Tensor, nn

import moreaugrad as mg
from moreaugrad.envelope.derivative import Derivative
from reliability.fuzz import examples, networks
from reliability.fuzz.odd_inputs import sound

Use = Callable[[Any, Path], Any]


@cache
def inputs() -> Tensor:
    return sound(random.Random(1))


@cache
def attacked() -> list[Any]:
    """Results of two attacks on the same images."""
    return [mg.RandomNoise(mg.Gradient(networks.pictures()), 0.5, tries=2, seed=n).perturb(inputs()) for n in (0, 1)]


@cache
def classifier() -> Any:
    from moreaugrad.models.custom import as_classifier

    return as_classifier(networks.photos())


def _scores(x: Tensor) -> Tensor:
    found: Tensor = networks.pictures()(x)
    return found


QUICK = {"noise": {"tries": 2}}
# what functions need beside their options, by public name
KNOWN_CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "explain": lambda: {"model": networks.photos(), "image": examples.photo(), "budget": 16, "samples": 2},
    "certify": lambda: {
        "method": _certified(), "x": inputs(), "noise": mg.FreshNoise(samples=64, seed=5), "epsilon": 0.01,
    },
    "Study": lambda: {"methods": {"gradient": {}}, "attacks": QUICK, "epsilons": (0.3,), "budget": 16},
    "run_study": lambda: {
        "study": mg.Study({"gradient": {}}, QUICK, (0.3,), budget=16, attack_budget=16),
        "model": networks.pictures(), "images": inputs(),
    },
    "prepare": lambda: {"model": networks.pictures(), "inputs": inputs()},
    "Prepared": lambda: {"forward": networks.pictures()},
    "with_softplus": lambda: {"model": networks.pictures()},
    "lipschitz_bounds": lambda: {"module": networks.linear()},
    "LipschitzBounds": lambda: {"lipschitz": 1.0},
    "to_units": lambda: {"classifier": classifier()},
    "in_pixels": lambda: {"classifier": classifier()},
    "Classifier": lambda: {"network": networks.photos(), "view": classifier().view, "name": "tiny"},
    "Clipped": lambda: {"network": networks.pictures(), "low": -1.0, "high": 1.0},
    "Odds": lambda: {"network": networks.pictures(), "centre": 0.0, "scale": 1.0},
    "Votes": lambda: {"network": networks.pictures()},
    "TensorSource": lambda: {"x": inputs()},
    "Contrast": lambda: {"against": 1},
    "strongest_attack": lambda: {"found": attacked()},
    "summary": lambda: {"values": [1.0, 2.0, 3.0]},
    "from_captum": lambda: {"attribution": Saliency},
    "from_function": lambda: {"function": lambda model, inputs, targets, **options: inputs * 1.0},
    "LightningMaps": lambda: {"batch": inputs()},
    "TrainerMaps": lambda: {"batch": inputs()},
    "register": lambda: {"kind": "prior", "name": "no_such_prior"},
}  # fmt: skip


def _certified() -> Any:
    noise = mg.Smoothing(sigma=0.5, samples=4)
    return mg.METHODS["moreau"](networks.pictures(), score="prob", rho="certified", smoothing=noise)


def find_use(made: Any) -> Use:
    """How an object is used; what is a result already is returned as it is."""
    for kind, use in USES.items():
        if isinstance(made, kind):
            return use
    if isinstance(made, type) and issubclass(made, mg.Method):
        return lambda kind, folder: _attribute(kind(networks.pictures()), folder)
    if all(callable(getattr(made, name, None)) for name in ("value", "prox", "units")):
        return _use_prior
    if inspect.ismethod(getattr(made, "run", None)):
        return _use_solver
    return lambda found, folder: found


def _attribute(method: Any, folder: Path) -> Any:
    return method.attribute(inputs(), target=1)


def _perturb(attack: Any, folder: Path) -> Any:
    return attack, inputs(), attack.perturb(inputs())


def _use_prior(prior: Any, folder: Path) -> Any:
    return mg.MoreauGrad(networks.pictures(), prior=prior, sparsity=0.25, budget=16).attribute(inputs(), 1)


def _use_solver(solver: Any, folder: Path) -> Any:
    noise = None if isinstance(solver, mg.ProximalGradient) else mg.Smoothing(samples=2)
    return mg.MoreauGrad(networks.pictures(), solver=solver, smoothing=noise, budget=16).attribute(inputs(), 1)


def _use_derivative(derivative: Any, folder: Path) -> Any:
    x = inputs().clone().requires_grad_()
    method = mg.MoreauGrad(networks.pictures(), rho=0.1, derivative=derivative, budget=16, samples=2)
    (found,) = torch.autograd.grad(method.attribute(x, 1, create_graph=True).square().sum(), x)
    return found


def _use_smoothing(smoothing: Any, folder: Path) -> Any:
    mg.SmoothGrad(networks.pictures(), smoothing).attribute(inputs(), 1)
    return mg.MoreauGrad(networks.pictures(), smoothing=smoothing, budget=max(16, smoothing.samples)).attribute(
        inputs(), 1
    )


def _use_contrast(score: Any, folder: Path) -> Any:
    return mg.Gradient(networks.pictures(), score=score).attribute(inputs(), 0)


def _certify(name: str) -> Use:
    def use(option: Any, folder: Path) -> Any:
        options = {"noise": mg.FreshNoise(samples=64, seed=5)} | {name: option}
        return mg.certify(_certified(), inputs(), None, 0.01, **options)

    return use


def _run_study(study: Any, folder: Path) -> Any:
    return mg.run_study(study, networks.pictures(), inputs(), folder / "out" / "study.csv")


def _use_network(network: Any, folder: Path) -> Any:
    return mg.Gradient(network).attribute(inputs(), 1)


def _use_classifier(made: Any, folder: Path) -> Any:
    return mg.explain(made, examples.photo(), "gradient")


USES: dict[Any, Use] = {
    mg.Method: _attribute,
    mg.Attack: _perturb,
    Derivative: _use_derivative,
    mg.Smoothing: _use_smoothing,
    mg.Contrast: _use_contrast,
    mg.Assumptions: _certify("assume"),
    mg.CertifiedProblem: _certify("problem"),
    mg.FreshNoise: _certify("noise"),
    mg.ReportOptions: _certify("report"),
    mg.Study: _run_study,
    mg.Classifier: _use_classifier,
    mg.Prepared: _use_network,
    nn.Module: _use_network,
}
