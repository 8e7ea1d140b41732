"""Small calls of every method, attack and metric of the tables: what the checks of threads, processes and leaks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network

SIZE, CLASSES = 12, 5
Work = Callable[[Tensor], list[Tensor]]  # images (N, 3, SIZE, SIZE) -> what must be the same wherever it is computed

METHODS: dict[str, dict[str, Any]] = {
    "gradient": {},
    "integrated_gradients": {"steps": 4},
    "deeplift": {},
    "smoothgrad": {"smoothing": mg.Smoothing(samples=4)},
    "sparsified_smoothgrad": {"smoothing": mg.Smoothing(samples=4)},
    "relex": {"budget": 16, "steps": 4, "lam1": 1e-6},
    "cam": {},
    "gradcam": {},
    "gradcam_plus_plus": {},
    "normgrad": {},
    "meaningful_perturbation": {"budget": 4},
    "fgvis": {"budget": 4, "lam": 1e-3},
    "mask_network": {},
    "moreau": {"budget": 32},
    "sparse_moreau": {"budget": 32, "sparsity": 0.25},
    "group_sparse_moreau": {"budget": 32, "sparsity": 0.25, "groups": 4},
}
ATTACKS: dict[str, dict[str, Any]] = {
    "topk": {"epsilon": 0.5, "k": 20, "steps": 2},
    "mass_centre": {"epsilon": 0.5, "steps": 2},
    "region": {"epsilon": 0.5, "steps": 2, "region": (0, 0, 4, 4)},
    "manipulation": {"epsilon": 0.5, "steps": 2, "step_size": 0.05, "target_map": torch.ones(SIZE, SIZE).triu()},
    "noise": {"epsilon": 0.5, "norm": "l2"},
    "pgd": {"epsilon": 0.5, "steps": 2},
    "structured": {"epsilon": 1.0, "groups": 4, "rounds": 1, "iterations": 4},
    "patch": {"epsilon": 3.0, "norm": "linf", "steps": 2, "step_size": 0.8, "of": "gradcam"},
    "model_fooling": {"epsilon": float("inf"), "steps": 1, "lr": 1e-3, "of": "gradcam"},
}
BOXES = torch.tensor([[2, 3, 9, 8], [0, 0, 12, 4]])


def network(seed: int = 0) -> nn.Module:
    """A convolutional classifier with batch norm and kinks; its head is linear in a mean, so that CAM takes it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
        )  # fmt: skip
        norm: Any = net[1]
        nn.init.normal_(norm.running_mean, std=0.1)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return net.eval()


def images(count: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def make_method(name: str, net: Any, **options: Any) -> mg.Method:
    if name == "mask_network":  # untrained: it must be the same, not good
        model = find_classifier(net)
        found, _ = initial_mask_network(MaskRecipe(width=8), model, torch.zeros(2, 3, SIZE, SIZE))
        options = {"network": found.eval(), **options}
    method: mg.Method = mg.METHODS[name](net, **{**METHODS[name], **options})
    return method


def explain(method: mg.Method, x: Tensor) -> list[Tensor]:
    found: Any = method.explain(x)
    return [found.map, found.score, found.target]


def make_work(kind: str, name: str, net: Any, **options: Any) -> Work:
    """A member of a table as a function of images; what it is made of is shared by all calls of it."""
    if kind == "method":
        return partial(explain, make_method(name, net, **options))
    if kind == "attack":
        return partial(_attack, _make_attack(name, net))
    return partial(_measure, name, net)


def every_member() -> Iterator[tuple[str, str]]:
    """Kind and name of what the tables of the package hold."""
    for kind, table in (("method", mg.METHODS), ("attack", mg.ATTACKS), ("metric", mg.METRICS)):
        yield from ((kind, name) for name, entry in table.items() if entry.member is None)


def _make_attack(name: str, net: Any) -> Any:
    given = dict(ATTACKS[name])
    method = mg.METHODS[given.pop("of", "gradient")](net)
    return mg.ATTACKS[name](method, given.pop("epsilon"), **given)


def _attack(attack: Any, x: Tensor) -> list[Tensor]:
    found = attack.perturb(x)
    values = (getattr(found, each.name) for each in fields(found))
    return [each for each in values if isinstance(each, Tensor)]


def _measure(name: str, net: nn.Module, x: Tensor) -> list[Tensor]:
    metric: Any = mg.METRICS[name]
    gradient = mg.Gradient(net).attribute(x, target=1)
    ways: dict[str, Callable[[], Any]] = {
        "pair": lambda: metric(gradient, x),
        "map": lambda: metric(gradient, **({"groups": 4} if name == "active_groups" else {})),
        "box": lambda: metric(gradient, BOXES[: len(x)]),
        "model": lambda: metric(gradient, x, net, 2),
        "explainer": lambda: metric(_explainer(net), x) if name == "local_lipschitz" else metric(_explainer, net, x),
    }
    found = ways[mg.METRICS[name].needs]()
    return [torch.as_tensor(getattr(found, "similarity", found))]


def _explainer(net: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: mg.Gradient(net).attribute(x, target=1)
