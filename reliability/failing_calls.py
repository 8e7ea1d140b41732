"""Models that fail at a chosen call, in every method, attack, metric, certificate and training step.

After each failure everything must be as it was, and the same object must give the answer that it would have given.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.methods.options import make_method, option_names
from moreaugrad.metrics import METRICS
from moreaugrad.studies.setup import attack_options
from moreaugrad.training.classifiers import ClassifierTrainer
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network
from moreaugrad.training.recipes import choose_recipe
from reliability.failing_writes import settle_threads
from reliability.state import changed, global_state
from reliability.tiny import Small

FEW = {"budget": 8, "steps": 2, "rounds": 2, "iterations": 3, "samples": 8}
MORE: dict[str, dict[str, Any]] = {  # what some members cannot do without, or do too long otherwise
    "relex": {"budget": 24},
    "sparse_moreau": {"sparsity": 0.25},
    "group_sparse_moreau": {"sparsity": 0.25, "groups": 4},
    "fgvis": {"lam": 1e-3},
    "region": {"region": (0, 0, 4, 4)},
    "manipulation": {"step_size": 0.05, "target_map": torch.eye(16)},
    "patch": {"step_size": 0.8},
    "model_fooling": {"lr": 1e-3},
}
CALLS, OTHERS = ("attribute", "explain"), ("mg.explain", "mg.prepare", "certify")
REWRITING = ("deeplift", "fgvis", "mask_network")  # methods that cannot read a network with a function of our own in it
ON_LAYERS = ("patch", "model_fooling")  # attacks that are shown on maps of a layer


class PlantedError(Exception):
    """Raised in place of the model's answer."""


KINDS: tuple[type[BaseException], ...] = (PlantedError, KeyboardInterrupt, RuntimeError, MemoryError)


@dataclass
class Trap:
    """Counts the calls of a model, forward and backward, and fails at one of them."""

    at: int | None = None  # from 0
    kind: type[BaseException] = PlantedError
    made: int = 0

    def step(self) -> None:
        self.made += 1
        if self.at is not None and self.made == self.at + 1:
            raise self.kind(f"planted at call {self.at}")


class _Step(torch.autograd.Function):
    """The identity, which tells of its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, trap: Trap) -> Tensor:
        ctx.trap = trap
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.trap.step()
        return grad, None


class Trapped(nn.Module):
    """A model with a trap in it; copies of it, as attacks on weights make them, share the trap."""

    def __init__(self, net: nn.Module, trap: Trap) -> None:
        super().__init__()
        self.net, self.traps, self.training = net, [trap], net.training

    def __deepcopy__(self, memo: dict[int, Any]) -> Trapped:
        found = Trapped(copy.deepcopy(self.net, memo), self.traps[0])
        found.traps = self.traps
        return found.train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        self.traps[0].step()
        found: Tensor = self.net(x)
        return found


class Graded(Trapped):
    """With the backward pass trapped too; nothing that rewrites a network can read it."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Step.apply(super().forward(x), self.traps[0])
        return found


@dataclass
class Subject:
    """Something that calls a model, which fails where its trap says."""

    model: Trapped
    run: Callable[[], Any]
    tensors: tuple[Tensor, ...] = ()
    modules: tuple[nn.Module, ...] = ()  # beside the model

    def set_trap(self, at: int | None, kind: type[BaseException] = PlantedError) -> Trap:
        self.model.traps[0] = Trap(at, kind)
        return self.model.traps[0]

    def fail(self, at: int, kind: type[BaseException], wanted: Any) -> list[str]:
        """What is wrong after a failure at one call."""
        before, inside, threads = global_state(), self._snapshot(), threading.active_count()
        self.set_trap(at, kind)
        faults = []
        try:
            if not same(self.run(), wanted):  # a second attempt may have succeeded
                faults.append("no failure came out, and another answer")
        except BaseException as error:
            if type(error) is not kind and "planted" not in f"{error} {error.__cause__} {error.__context__}":
                faults.append(f"{error!r} came out")
        faults += [f"left changed: {name}" for name in changed(before, global_state())]
        faults += [f"left changed: {name}" for name in changed(inside, self._snapshot())]
        faults += ["left a thread"] * (not settle_threads(threads))
        self.set_trap(None)
        return faults + ["changed what comes next"] * (not same(self.run(), wanted))

    def _snapshot(self) -> dict[str, Any]:
        """All that a caller can see of the model and the tensors."""
        found: dict[str, Any] = {}
        for i, whole in enumerate((self.model, *self.modules)):
            found |= {f"modules of {i}": [(name, id(each)) for name, each in whole.named_modules()]}
            for name, module in whole.named_modules():
                hooks = {key: len(value) for key, value in vars(module).items() if key.endswith("_hooks") and value}
                found[f"{i}.{name}: flags and hooks"] = (module.training, hooks, sorted(vars(module)))
            for name, tensor in (*whole.named_parameters(), *whole.named_buffers()):
                found[f"{i}.{name}"] = _describe(tensor)
        return found | {f"input {i}": _describe(tensor) for i, tensor in enumerate(self.tensors)}


def _describe(tensor: Tensor) -> tuple[Any, ...]:
    grad = None if not tensor.is_leaf or tensor.grad is None else tensor.grad.numpy(force=True).tobytes()
    return id(tensor), tensor.requires_grad, grad, tensor._version, tensor.numpy(force=True).tobytes()


def fail_everywhere(name: str, make: Callable[[], Subject], most: int) -> tuple[int, list[str]]:
    """One failure at each call of a new subject, or at `most`: the first, the last and some between them.

    How many there were, and what was wrong.
    """
    first = make()
    trap = first.set_trap(None)
    wanted, faults = first.run(), list[str]()
    ends = {*range(min(4, trap.made)), trap.made - 1}
    rest = [at for at in range(trap.made) if at not in ends]
    chosen = sorted(ends | set(random.Random(name).sample(rest, min(len(rest), max(0, most - len(ends))))))
    for number, at in enumerate(chosen):
        kind = KINDS[number % len(KINDS)]
        faults += [f"{name}, {kind.__name__} at call {at}: {fault}" for fault in make().fail(at, kind, wanted)]
    return len(chosen), faults


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, bit by bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


Make = Callable[[], Subject]


def list_subjects() -> dict[str, Make]:
    """Everything that calls a model, by name."""
    found: dict[str, Make] = {"a training step": make_training}
    for kind in (Trapped, Graded):
        made: dict[str, Make] = {}
        for name in mg.METHODS:
            if kind is Trapped or name not in REWRITING:
                made |= {f"{name}.{call}": partial(make_method_call, kind, name, call) for call in CALLS}
        made |= {name: partial(make_attack, kind, name) for name in mg.ATTACKS}
        calling = [name for name in mg.METRICS if METRICS[name].needs in ("model", "explainer")]
        made |= {name: partial(make_metric, kind, name) for name in calling}
        made |= {name: partial(make_other, kind, name) for name in OTHERS}
        found |= {f"{name} ({kind.__name__.lower()})": make for name, make in made.items()}
    return found


def make_model(kind: type[Trapped]) -> Trapped:
    """A model with marks on it: weights that are frozen, a gradient that is there already."""
    net = Small().eval()
    net.features[0].weight.requires_grad_(False)
    net.head.weight.grad = torch.ones_like(net.head.weight)
    return kind(net, Trap())


def make_images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def few_options(name: str, known: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in {**FEW, **MORE.get(name, {})}.items() if key in known}


def make_method_call(kind: type[Trapped], name: str, call: str) -> Subject:
    model, x = make_model(kind), make_images()
    options, more = few_options(name, option_names(name)), list[nn.Module]()
    if "trained" in mg.METHODS[name].flags:
        more.append(initial_mask_network(MaskRecipe(width=8), find_classifier(model.net), make_images())[0].eval())
        options["network"] = more[0]
    method = make_method(name, model, options)

    def run() -> Any:
        return method.attribute(x, target=1) if call == "attribute" else method.explain(x).map

    return Subject(model, run, (x,), tuple(more))


def make_attack(kind: type[Trapped], name: str) -> Subject:
    model, x = make_model(kind), make_images()
    method = mg.METHODS["gradcam" if name in ON_LAYERS else "gradient"](model)
    epsilon = float("inf") if "weights" in mg.ATTACKS[name].flags else 0.5
    attack = mg.ATTACKS[name](method, epsilon, **few_options(name, attack_options(name)))
    return Subject(model, lambda: attack.perturb(x).x, (x,))


def make_metric(kind: type[Trapped], name: str) -> Subject:
    model, x, maps = make_model(kind), make_images(), make_images().abs()

    def run() -> Any:
        if METRICS[name].needs == "model":
            return mg.METRICS[name](maps, x, model, 2)
        if name == "local_lipschitz":
            return mg.local_lipschitz(explain(model), x)
        found = mg.METRICS[name](explain, model, x)
        return getattr(found, "similarity", found)

    return Subject(model, run, (x, maps))


def explain(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return partial(mg.METHODS["gradient"](model).attribute, target=1)


def make_other(kind: type[Trapped], name: str) -> Subject:
    model, x = make_model(kind), make_images()

    def run() -> Any:
        if name == "mg.explain":
            return mg.explain(model, x, "moreau", budget=16, preset="published").map
        if name == "mg.prepare":
            return mg.prepare(model)(x)
        method = mg.SparsifiedSmoothGrad(model, smoothing=mg.Smoothing(sigma=0.25, samples=8))
        return list(map(repr, mg.certify(method, x, noise=mg.FreshNoise(samples=16, seed=1))))

    return Subject(model, run, (x,))


def make_training() -> Subject:
    """An epoch, which changes the network that it trains, and nothing else."""
    x = torch.randint(0, 255, (16, 32, 32, 3), generator=torch.Generator().manual_seed(0)).byte().numpy()
    y = (torch.arange(16) % 3).byte().numpy()
    options = {"network": "resnet18", "width": 2, "epochs": 2, "batch": 8, "noise_sigma": 0.1, "seed": 0}
    outside = make_model(Trapped)

    def train() -> Tensor:
        trainer = ClassifierTrainer(choose_recipe(options, False), mg.Arrays(x, y, x, y), torch.device("cpu"))
        trainer.network.register_forward_pre_hook(lambda *given: outside.traps[0].step())
        trainer.advance()
        return next(trainer.network.parameters()).detach()

    return Subject(outside, train)
