"""Calls with odd tensors, targets and models: methods, `mg.explain`, attacks, metrics, certificates.

Mostly one thing is odd at a time, so that it is not hidden behind the refusal of another.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from reliability.fuzz import answers, examples, networks
from reliability.fuzz.case import PACKAGE, Case
from reliability.fuzz.odd_inputs import SHAPE, Input, odd_input, odd_target, sound
from reliability.fuzz.untouched import untouched


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer of a call whose model fails by itself on these inputs: its own error is what callers need to see."""

    error: BaseException


def make_case(chance: random.Random) -> Case:
    ways = {_method_case: 8, _explain_case: 2, _attack_case: 3, _metric_case: 3, _certify_case: 1, _further_case: 2}
    [way] = chance.choices(list(ways), list(ways.values()))
    return way(chance)


def call(run: Callable[[], Any], model: Any, x: Any, *arguments: Any) -> Any:
    """What a call answers; `Failed` where the model fails by itself, in the same way."""
    try:
        return run()
    except Exception as error:
        for own in (_fail_alone(model, x, arguments, rows) for rows in (None, 1)):  # models get their rows in chunks
            if type(own) is type(error) and (str(own) == str(error) or _ends_outside(error)):
                return Failed(error)
        raise


def _ends_outside(error: Exception) -> bool:
    """Whether it was raised in code that the package has called; its words may name the number of rows."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and not trace.tb_frame.f_code.co_filename.startswith(PACKAGE)


def _fail_alone(model: Any, x: Any, arguments: tuple[Any, ...], rows: int | None) -> Exception | None:
    """How the model fails on the inputs themselves, without the package."""
    given = x if isinstance(x, tuple) else (x,)
    model = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    try:
        with torch.enable_grad(), torch.inference_mode(False):
            model(*[each.detach()[:rows].clone().requires_grad_() for each in given], *arguments)
    except Exception as error:
        return error
    return None


def _odd_model(chance: random.Random) -> tuple[str, Any]:
    """A model with something wrong, or something that is no model."""
    if chance.random() < 0.85:
        rule = chance.choice(networks.BROKEN)
        return f"a model: {rule}", networks.broken(rule)
    others: dict[str, Any] = {
        "in training mode": networks.training(), "None": None, "a word": "resnet", "a class": networks.Pictures,
        "a number": 3, "a tensor": torch.zeros(3), "of no arguments": lambda: 0,
        "prepared": mg.prepare(networks.pictures()),
        "of float64": networks.double(), "of rows": networks.linear(), "a method": networks.pictures().forward,
    }  # fmt: skip
    name = chance.choice(list(others))
    return f"a model: {name}", others[name]


def _method_case(chance: random.Random) -> Case:
    """One method: odd inputs, an odd target, an odd model or odd arguments of the call."""
    name = chance.choice(examples.methods())
    odd = chance.choices(["input", "target", "model", "argument"], [5, 3, 3, 2])[0]
    x = odd_input(chance) if odd == "input" else Input("sound inputs", sound(chance))
    target = odd_target(chance) if odd == "target" else Input("", chance.choice([0, [1, 2], torch.tensor([0, 2])]))
    what, model = _odd_model(chance) if odd == "model" else ("", _network_for(chance, name, x))
    further = {} if odd != "argument" else _odd_argument(chance, x.value)
    asked = chance.choice(["attribute", "explain"])
    told = ", ".join(filter(None, (x.name, target.name, what, *map(repr, further))))

    def run(folder: Path) -> Any:
        with untouched([x.value, target.value, model, list(further.values())]):
            method = examples.make_method(name, model)
            given = further.get("additional_forward_args")
            extra = () if given is None else given if isinstance(given, tuple) else (given,)
            return call(
                partial(getattr(method, asked), x.value, target=target.value, **further), model, x.value, *extra
            )

    def check(found: Any) -> str | None:
        if isinstance(found, Failed):
            return None
        if asked == "explain":
            return answers.check_explanation(x.value, found)
        pair = further.get("return_convergence_delta") is True
        fault = answers.check_map(x.value, found[0] if pair else found)
        return fault or _check_plain(name, x, target.value, model, found)

    return Case(f"{name}.{asked}: {told}", run, check)


def _network_for(chance: random.Random, name: str, x: Input) -> Any:
    """A network that takes these inputs, if any does."""
    shape = tuple(x.value.shape) if isinstance(x.value, Tensor) else ()
    if "layer" in mg.METHODS[name].flags or "trained" in mg.METHODS[name].flags or name == "meaningful_perturbation":
        return networks.double() if getattr(x.value, "dtype", None) == torch.float64 else networks.pictures()
    if shape == SHAPE and x.value.dtype == torch.float32 and chance.random() < 0.7:
        return networks.pictures()
    return networks.rows()


def _check_plain(name: str, x: Input, target: Any, model: Any, found: Any) -> str | None:
    """Tensors of another layout have the map of the same values in a tensor of their own."""
    if x.plain is None or not isinstance(found, Tensor) or not isinstance(x.value, Tensor):
        return None
    wanted = examples.make_method(name, model).attribute(x.plain, target=target)
    close = torch.allclose(found.detach(), wanted.detach(), rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
    return None if close else f"the map is not that of the same values in a plain tensor: {x.name}"


def _odd_argument(chance: random.Random, x: Tensor) -> dict[str, Any]:
    """Further arguments of `attribute` and `explain`."""
    odd = [None, 0, 1, 2, -1, 1.5, True, "x", [], (), x, x[:1], torch.tensor(2), float("nan"), object()]
    name = chance.choice(
        ["baselines", "additional_forward_args", "internal_batch_size", "callback", "seeds", "return_convergence_delta",
         "create_graph", "show_progress", "statistics", "nonsense"]
    )  # fmt: skip
    if name == "baselines":
        odd = [*odd, 0.5, x[0], (x,), (x, x), odd_input(chance).value, -3.0, "black", [x]]
    if name == "seeds":
        odd = [*odd, [1, 2], [1], [1, -1], [1.5, 2], ["a", "b"], (3, 4), torch.tensor([1, 2]), [10**30, 2], 5]
    return {name: chance.choice(odd)}


def _explain_case(chance: random.Random) -> Case:
    """`mg.explain`: arrays, pictures, lists of them, tensors; targets by number and name."""
    model = networks.photos()
    image = examples.odd_image(chance)
    target = odd_target(chance, 1) if chance.random() < 0.4 else Input("", chance.choice([None, 1, "dog"]))
    method = chance.choice(["gradient", "smoothgrad", "sparse_moreau", "gradcam"])
    options = {"samples": 4, "budget": 16} if method == "sparse_moreau" else {}
    options = {"samples": 4} if method == "smoothgrad" else options

    def run(folder: Path) -> Any:
        with untouched([image.value, target.value, model]):
            explain = partial(mg.explain, model, image.value, method, target=target.value, **options)
            return call(explain, model, image.value)

    def check(found: Any) -> str | None:
        if isinstance(found, Failed):
            return None
        return answers.check_explanation(found.source.inputs[0], found)

    return Case(f"explain {method}: {image.name}, {target.name}", run, check)


def _attack_case(chance: random.Random) -> Case:
    name = chance.choice(examples.attacks())
    odd = chance.choices(["input", "target", "model"], [4, 3, 3])[0]
    x = odd_input(chance) if odd == "input" else Input("sound inputs", sound(chance))
    target = odd_target(chance) if odd == "target" else Input("", None)
    what, model = _odd_model(chance) if odd == "model" else ("", networks.pictures())

    def run(folder: Path) -> Any:
        with untouched([x.value, target.value, model]):
            attack = examples.make_attack(name, model)
            return attack, call(partial(attack.perturb, x.value, target=target.value), model, x.value)

    def check(found: Any) -> str | None:
        attack, result = found
        return None if isinstance(result, Failed) else answers.check_attack(attack, x.value, result)

    return Case(f"{name}.perturb: {x.name}, {target.name}, {what}", run, check)


def _metric_case(chance: random.Random) -> Case:
    """One metric with one odd argument."""
    name = chance.choice(examples.metrics())
    given = examples.metric_arguments(chance, name)
    place = chance.randrange(len(given))
    if chance.random() < 0.8:
        odd = odd_input(chance) if isinstance(given[place], Tensor) else _odd_in_place(chance, given[place])
        given = [*given[:place], odd.value, *given[place + 1 :]]
        if odd.name.startswith("shape") and isinstance(given[0], Tensor) and chance.random() < 0.7:
            given = [odd.value.clone() if isinstance(each, Tensor) else each for each in given]
    else:
        odd = Input("sound arguments", None)

    def run(folder: Path) -> Any:
        with untouched(given):
            model = next((each for each in given if isinstance(each, torch.nn.Module)), networks.pictures())
            judged = given[1] if mg.METRICS[name].needs == "model" else given[-1]
            return call(lambda: mg.METRICS[name](*given), model, judged)

    def check(found: Any) -> str | None:
        images = next((len(each) for each in given if isinstance(each, Tensor) and each.ndim), None)
        if images is None or isinstance(found, Failed):
            return None
        return answers.check_figures(name, images, found)

    return Case(f"{name}: argument {place} is {odd.name}", run, check)


def _odd_in_place(chance: random.Random, given: Any) -> Input:
    """Something odd where a model, an explainer, a factory or boxes stand."""
    if isinstance(given, torch.nn.Module):
        return Input(*_odd_model(chance))
    if callable(given):
        odd = chance.choice(["number", "None", "tensor", "NaN", "shape", "fails"])
        makers: dict[str, Any] = {
            "number": 3, "None": None, "tensor": torch.zeros(2, 2), "NaN": lambda *a: torch.full(SHAPE, torch.nan),
            "shape": lambda *a: torch.zeros(2, 7), "fails": networks.broken("fails"),
        }  # fmt: skip
        return Input(f"a function: {odd}", makers[odd])
    return odd_target(chance)


def _certify_case(chance: random.Random) -> Case:
    method = examples.certified_method(chance)
    odd = chance.random() < 0.6
    x = odd_input(chance) if odd else Input("sound inputs", sound(chance))
    target = Input("", None) if odd else odd_target(chance)
    noise = mg.FreshNoise(samples=64, seed=3)

    def run(folder: Path) -> Any:
        with untouched([x.value, target.value, method.forward_func]):
            certify = partial(mg.certify, method, x.value, target.value, 0.01, noise=noise)
            return call(certify, method.forward_func, x.value)

    def check(found: Any) -> str | None:
        return None if isinstance(found, Failed) else answers.check_certificates(x.value, found)

    return Case(f"certify: {x.name}, {target.name}", run, check)


def _as_quantus(value: Any) -> Any:
    """Inputs as a metric of Quantus passes them."""
    try:
        return torch.as_tensor(np.asarray(value)).float()
    except (TypeError, ValueError, RuntimeError):
        return value


def _moreau(**options: Any) -> Any:
    return mg.MoreauGrad(networks.rows(), budget=16, **options)


def _whole(value: Any) -> Any:
    """The same with whole numbers, where it can have them."""
    return value.long() if isinstance(value, Tensor) and not value.is_quantized else value


def _further_case(chance: random.Random) -> Case:
    """The other functions that take tensors or models."""
    x, what = odd_input(chance), _odd_model(chance)[1]
    prior: Any = mg.PRIORS[chance.choice(list(mg.PRIORS))]()
    ways: dict[str, Callable[[], Any]] = {
        "prepare": lambda: mg.prepare(what),
        "prepare with inputs": lambda: mg.prepare(networks.pictures(), x.value),
        "lipschitz_bounds": lambda: mg.lipschitz_bounds(what),
        "with_softplus": lambda: mg.with_softplus(what),
        "summary": lambda: mg.summary(x.value, draws=50),
        "a tensor source": lambda: mg.TensorSource(x.value),
        "eta": lambda: mg.SparseMoreauGrad(networks.rows(), eta=x.value, budget=16).attribute(torch.ones(2, 6), 0),
        "groups": lambda: mg.GroupSparseMoreauGrad(networks.pictures(), groups=x.value, budget=16).attribute(
            torch.ones(SHAPE), 0
        ),
        "groups of whole numbers": lambda: mg.GroupSparseMoreauGrad(
            networks.pictures(), groups=_whole(x.value), budget=16
        ).attribute(torch.ones(SHAPE), 0),
        "a box": lambda: mg.Pgd(networks.pictures(), 0.1, steps=2, box=(x.value, 9.0)).perturb(torch.zeros(SHAPE)),
        "a goal": lambda: mg.Pgd(networks.pictures(), 0.1, steps=2, goal=x.value).perturb(torch.zeros(SHAPE)),
        "a target map": lambda: mg.Manipulation(
            mg.Gradient(networks.pictures()), 0.1, steps=2, target_map=x.value
        ).perturb(torch.ones(SHAPE)),
        "a target image": lambda: mg.Manipulation(
            mg.Gradient(networks.pictures()), 0.1, steps=2, target_image=x.value
        ).perturb(torch.ones(SHAPE)),
        "a region": lambda: mg.Region(mg.Gradient(networks.pictures()), 0.1, steps=2, region=x.value).perturb(
            torch.ones(SHAPE)
        ),
        "a replacement": lambda: mg.deletion(
            torch.ones(SHAPE), torch.ones(SHAPE), networks.pictures(), 0, baseline=x.value
        ),
        "clipped": lambda: mg.Gradient(mg.Clipped(what, -1, 1)).attribute(torch.ones(SHAPE), 0),
        "odds": lambda: mg.Gradient(mg.Odds(what, 0.0, 1.0)).attribute(torch.ones(SHAPE), 0),
        "votes": lambda: mg.Gradient(mg.Votes(what)).attribute(torch.ones(SHAPE), 0),
        "a quantus call": lambda: mg.quantus_explain("gradient")(networks.pictures(), x.value, [0, 1]),
        "several results": lambda: mg.strongest_attack([x.value]),
        "a prior": lambda: _moreau(prior=x.value, eta=0.1).attribute(torch.ones(2, 6), 0),
        "a solver": lambda: _moreau(solver=x.value).attribute(torch.ones(2, 6), 0),
        "a batch under a prior": lambda: _moreau(prior=prior, eta=0.1).attribute(x.value, 0),
    }  # fmt: skip
    name = chance.choice(list(ways))

    def run(folder: Path) -> Any:
        with untouched([x.value, networks.pictures(), what]):
            if name == "a quantus call":
                return call(ways[name], networks.pictures(), _as_quantus(x.value))
            if name == "a batch under a prior":
                return call(ways[name], networks.rows(), x.value)
            return call(ways[name], what, torch.ones(SHAPE))

    def check(found: Any) -> str | None:
        values = getattr(found, "x", found)
        ok = not isinstance(values, Tensor) or not values.is_floating_point() or bool(values.isfinite().all())
        return None if ok or name == "a replacement" else "the answer is not finite"

    return Case(f"{name}: {x.name}", run, check)
