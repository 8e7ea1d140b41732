"""Cheap, sound members of each family, found in the tables: what a case then makes odd."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

import moreaugrad as mg
from reliability.fuzz import networks
from reliability.fuzz.odd_inputs import Input, odd_input, sound

# sizes of the work, by the names of options, for whatever takes them
CHEAP: dict[str, Any] = {
    "budget": 16, "steps": 4, "samples": 4, "iterations": 5, "rounds": 2, "tries": 4, "draws": 50, "restarts": 1,
    "attack_budget": 16, "step_size": 0.05,
}  # fmt: skip
NEEDED: dict[str, Any] = {"epsilon": 0.5, "region": (0, 0, 4, 4), "target_map": torch.eye(networks.SIDE)}
OWN: dict[str, dict[str, Any]] = {  # of single members, where a size means something else
    "relex": {"budget": 80, "smoothing": mg.Smoothing(samples=4)},
    "patch": {"epsilon": 3.0, "norm": "linf", "step_size": 0.8},
    "model_fooling": {"epsilon": float("inf"), "steps": 2},
    "sparse_moreau": {"sparsity": 0.25},
    "group_sparse_moreau": {"sparsity": 0.25, "groups": 4},
    "integrated_gradients": {"steps": 6},
}


DTYPES = ["i8", "u2", "f2", "bool", "c8", "O", ">f4", "U3"]
SIZES = [
    (), (3,), (5, 5), (5, 5, 1), (5, 5, 2), (5, 5, 4), (5, 5, 7), (0, 5, 3), (1, 1, 3), (2, 5, 5, 3), (3, 5, 5),
    (1, 900, 3),
]  # fmt: skip
MODES = ["L", "1", "P", "RGBA", "CMYK", "I", "F", "LA", "HSV"]


def methods() -> list[str]:
    return list(mg.METHODS)


def attacks() -> list[str]:
    return list(mg.ATTACKS)


def metrics() -> list[str]:
    return list(mg.METRICS)


def parameters(kind: Any) -> dict[str, inspect.Parameter]:
    """The options of a class or function, by name, without what it is made for."""
    found = inspect.signature(kind).parameters
    return {name: each for name, each in found.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}


def cheap_options(name: str, kind: Any) -> dict[str, Any]:
    """Options with which a member does little."""
    known = parameters(kind)
    own = OWN.get(name, {})
    found = {key: value for key, value in {**CHEAP, **own}.items() if key in known}
    needed = {key: value for key, value in NEEDED.items() if key in known and key not in found}
    return found | {key: value for key, value in needed.items() if known[key].default in (known[key].empty, None)}


def make_method(name: str, model: Any, **options: Any) -> Any:
    given = {**cheap_options(name, mg.METHODS[name].load()), **options}
    if "trained" in mg.METHODS[name].flags:
        given = {"network": networks.masking(), **given}
    return mg.METHODS[name](model, **given)


def make_attack(name: str, model: Any, **options: Any) -> Any:
    kind = mg.ATTACKS[name].load()
    given = {**cheap_options(name, kind), **options}
    of = mg.GradCam if name in ("patch", "model_fooling") else mg.Gradient
    return kind(of(model), **given)


def metric_arguments(chance: random.Random, name: str) -> list[Any]:
    """What a metric compares or judges, by what it needs; sound ones."""
    maps, net = sound(chance), networks.pictures()
    boxes = torch.tensor([[0, 0, 4, 4], [2, 3, 8, 7]])
    further: dict[str, Callable[[], list[Any]]] = {
        "pair": lambda: [maps, sound(chance)],
        "map": lambda: [maps],
        "box": lambda: [maps, boxes],
        "model": lambda: [maps, sound(chance), net, 1],
        "explainer": lambda: [_gradient_of, net, sound(chance)],
    }
    if name == "local_lipschitz":
        return [_gradient_of(net), maps]
    return further[mg.METRICS[name].needs]()


def _gradient_of(model: Any) -> Callable[[Any], Any]:
    return partial(mg.Gradient(model).attribute, target=1)


def certified_method(chance: random.Random) -> Any:
    """A method that has a certificate."""
    noise, net = mg.Smoothing(sigma=0.5, samples=4), networks.pictures()
    return chance.choice(
        [
            partial(mg.METHODS["moreau"], net, score="prob", rho="certified"),
            partial(mg.MoreauGrad, net, rho=0, statistic="votes"),
            partial(mg.SmoothGrad, net, statistic="votes"),
            partial(mg.SparsifiedSmoothGrad, net),
        ]
    )(smoothing=noise)


def odd_image(chance: random.Random) -> Input:
    """What may be passed to `mg.explain` as an image."""
    pixels = np.random.default_rng(chance.getrandbits(32)).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels)
    choices: dict[str, Callable[[], Any]] = {
        "an array": lambda: pixels,
        "an array of floats": lambda: pixels / 255,
        "an array of large floats": lambda: pixels * 1e9,
        "an array with NaN": lambda: np.where(pixels > 250, np.nan, pixels / 255),
        "an array of another dtype": lambda: pixels.astype(chance.choice(DTYPES)),
        "an array of another size": lambda: np.zeros(chance.choice(SIZES), np.uint8),
        "a read-only view": lambda: np.broadcast_to(pixels[:1], (9, 7, 3)),
        "a reversed array": lambda: pixels[::-1, ::-1, ::-1],
        "a photo": lambda: photo,
        "a photo of another mode": lambda: photo.convert(chance.choice(MODES)),
        "a tiny photo": lambda: photo.resize((1, 1)),
        "a photo without pixels": lambda: Image.new("RGB", (0, 5)),
        "a closed photo": lambda: _closed(photo),
        "a list of photos": lambda: [photo, photo.rotate(90)],
        "a list of anything": lambda: [photo, chance.choice([None, 3, "none.png", [], pixels, torch.zeros(3, 8, 8)])],
        "an empty list": list,
        "a tuple": lambda: (photo, photo),
        "a tensor": lambda: sound(chance, (3, 8, 8)),
        "a batch": lambda: sound(chance, (2, 3, 8, 8)),
        "another tensor": lambda: odd_input(chance, (2, 3, 8, 8)).value,
        "a file that is not there": lambda: "none/such.png",
        "an empty name": lambda: "",
        "a name with a zero": lambda: "a\0b.png",
        "bytes": lambda: b"\x89PNG",
        "None": lambda: None,
        "a number": lambda: chance.choice([0, 1.5, True, np.float64(3)]),
        "an object": object,
        "a dict": lambda: {"image": photo},
        "a generator": lambda: iter([photo]),
    }  # fmt: skip
    name = chance.choice(list(choices))
    return Input(name, choices[name]())


def photo() -> Image.Image:
    """A small photo."""
    return Image.new("RGB", (9, 7), "red")


def _closed(photo: Image.Image) -> Image.Image:
    again = photo.copy()
    again.close()
    return again
