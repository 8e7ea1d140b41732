"""Fooling of a network's maps by its weights: a trained copy that is as accurate and whose maps are wrong.

The one attack that leaves every input as it is. The caller's model is copied, never touched.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.attacks import checks as rules
from moreaugrad.attacks import checks_fooling as asked
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.fooled_maps import KINDS, Maps
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.topk import salience
from moreaugrad.attacks.victim import Victim, on, outputs, settled
from moreaugrad.batch import total
from moreaugrad.model.prepared import numerics
from moreaugrad.types import Images, Watch, ignore_progress

log = logging.getLogger("moreaugrad")

Classes = Int[Tensor, "n"]
Pair = tuple[Images, Classes]


@dataclass(frozen=True, slots=True)
class Fooled(Attacked):
    """The fooled network, judged on the images of the validation, which are `x` and unchanged.

    success: the map is wrong by the kind's range, and not blank; kept: the network predicts what it did; objective:
    the figure that is judged; trace: that of the model, then of the fooled network; gradients: the training's,
    shared out.
    """

    model: nn.Module = field(kw_only=True)  # the fooled copy
    method: Any = field(kw_only=True)  # the attacked method on it
    fooling: Float[Tensor, "updates"] = field(kw_only=True)  # the fooling loss of each batch, before its update
    ce: Float[Tensor, "updates"] = field(kw_only=True)  # the cross-entropy likewise
    accuracy_before: float = field(kw_only=True)
    accuracy_after: float = field(kw_only=True)

    @property
    def success_rate(self) -> float:
        return float(self.success.double().mean())


@dataclass(frozen=True, eq=False)
class ModelFooling(Attack):
    """Weights that minimise CE + lam * (a loss of the maps) by Adam, batch norm as in evaluation.

    Kinds, of maps |m| summed over channels: `location` draws a frame (judged: at most .2 from it); `topk` empties what
    was the largest tenth (at most .3 left); `centre_mass` moves the centre of mass (by .1 of the picture or more);
    `active` exchanges the maps of two `classes` (each nearer to what the other's was). `fool` takes data; `perturb`
    fools the maps of the given images alone.
    """

    unbounded: ClassVar[bool] = True

    epsilon: float = inf  # there is no ball: no input moves
    kind: str = field(default="location", kw_only=True)  # or topk, centre_mass, active
    lam: float = field(default=10.0, kw_only=True)  # 0: plain fine-tuning
    lr: float = field(default=1e-5, kw_only=True)
    steps: int = field(default=1000, kw_only=True)
    batch_size: int = field(default=8, kw_only=True)  # of data given as tensors
    classes: tuple[int, int] | None = field(default=None, kw_only=True)  # of kind active

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        asked.no_ball(self.epsilon)
        rules.attackable(self.attacked)
        validate.one_of("kind", self.kind, KINDS)
        validate.not_negative("lam", self.lam)
        validate.positive("lr", self.lr)
        validate.at_least("steps", self.steps, 1)
        validate.at_least("batch_size", self.batch_size, 1)
        asked.two_classes(self.kind, self.classes)
        asked.network(self.model)

    def fool(self, data: Any, validation: Any = None, *, fooling: Any = None, callback: Watch | None = None) -> Fooled:
        """Trains on `data`, (x, y) or an iterable of such pairs, and judges on `validation` (None: on data).

        `fooling`: other images for the loss of the maps, such as those of kind active that hold both classes.
        """
        asked.judged_on(validation, asked.pairs("data", data))
        for name, given in (("validation", validation), ("fooling", fooling)):
            if given is not None:
                asked.pairs(name, given)
        validate.evaluating(self.model)
        where = _device(self.model)
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.random.fork_rng([where] if where.type == "cuda" else []),
        ):
            judged = list(_once("validation", data if validation is None else validation, where))
            asked.some("validation", judged)
            x, y = (torch.cat(parts) for parts in zip(*judged, strict=True))
            return self._fooled(data, (x.clone(), y), fooling, callback or ignore_progress)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Fooled:
        own = space.x, victim.target
        return self._fooled(own, own, None, watch)

    def _fooled(self, data: Any, judged: Pair, fooling: Any, watch: Watch) -> Fooled:
        x, kind, original = judged[0], KINDS[self.kind], settled(self.attacked)
        clean = outputs(self.model, x)
        y = rules.classes(judged[1], clean)
        asked.known(self.classes, clean.shape[1])
        copied = _trainable(asked.network(self.model))
        method = on(original, copied)
        batches = self._batches("data", data, clean.shape[1])
        others = None if fooling is None else self._batches("fooling", fooling, clean.shape[1])
        trace, rows = self._train(original, method, batches, others, watch)
        _settle(copied, asked.network(self.model))
        before, after = (self._maps(each, x, y) for each in (original, method))
        figures = torch.stack([kind.figure(before, before), kind.figure(after, before)])
        shown = torch.stack([total(maps) > 0 for maps in after]).all(0)  # a blank map misleads nobody
        victim = Victim(copied, y, clean.argmax(1))
        said = victim.predict(x)
        spent = torch.full_like(y, self._spent(method, x, y, rows))
        told = self._result(
            Space(x, inf, self.norm), victim, x, (figures[1] <= kind.limit) & shown, figures[1], figures, spent
        )
        return Fooled(
            **{each.name: getattr(told, each.name) for each in fields(Attacked)},
            model=copied,
            method=method,
            fooling=trace[0],
            ce=trace[1],
            accuracy_before=float((victim.clean == y).double().mean()),
            accuracy_after=float((said == y).double().mean()),
        )

    def _train(
        self, original: Any, method: Any, batches: Iterator[Pair], others: Iterator[Pair] | None, watch: Watch
    ) -> tuple[Float[Tensor, "2 updates"], tuple[int, int]]:
        """The losses, and how many rows they saw: those of the cross-entropy, and those of the maps."""
        network, kind, trace, rows = method.forward_func, KINDS[self.kind], [], [0, 0]
        weights = [p for p in network.parameters() if p.requires_grad]
        adam = torch.optim.Adam(weights, self.lr)
        for step in range(self.steps):
            batch = next(batches, None)
            shown = batch if others is None else next(others, None)
            if batch is None or shown is None:
                log.warning(
                    "the data was used up after %d of %d steps; give data that can be read again", step, self.steps
                )
                break
            before = self._maps(original, *shown, together=True) if kind.remembers else ()
            with torch.enable_grad(), numerics("float32", batch[0].is_cuda):
                ce = F.cross_entropy(validate.output(network(batch[0]), len(batch[0])), batch[1])
                asked.finite(ce.detach(), step)
                maps = self._maps(method, *shown, graph=self.lam > 0, together=True)
                fooling = kind.loss(maps, before).mean()
                if step == 0 and self.lam > 0:
                    asked.trainable(_reaches(fooling, weights), method.get_name())
                loss = ce + self.lam * fooling if self.lam > 0 else ce
                for weight, grad in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
                    weight.grad = grad
            adam.step()
            trace.append(torch.stack([fooling.detach(), ce.detach().to(fooling.dtype)]))
            rows = [rows[0] + len(batch[0]), rows[1] + len(shown[0])]
            watch(step + 1, self.steps, {"fooling": trace[-1][0], "ce": trace[-1][1]})
        asked.some("data", trace)
        return torch.stack(trace, 1), (rows[0], rows[1])

    def _maps(self, method: Any, x: Images, y: Classes, graph: bool = False, together: bool = False) -> Maps:
        """The saliency of each pixel for the class, or for each of two. `together`: in one call of the network."""
        size = len(x) if together else None
        wanted = (y,) if self.classes is None else tuple(torch.full_like(y, each) for each in self.classes)
        found = (method.attribute(x, target=each, create_graph=graph, internal_batch_size=size) for each in wanted)
        return tuple(salience(maps if graph else maps.detach()) for maps in found)

    def _batches(self, name: str, given: Any, count: int) -> Iterator[Pair]:
        """Batches without end; an iterator that can be read once ends."""
        where, generator, more = _device(self.model), torch.Generator().manual_seed(self.seed), True
        if asked.pairs(name, given):
            x, y = asked.pair(name, given, count)
            while True:
                for some in torch.randperm(len(x), generator=generator).split(self.batch_size):
                    yield x[some].detach().to(where), y[some].to(where)
        while more:
            more = False
            for each in _once(name, given, where, count):
                more = True
                yield each

    def _spent(self, method: Any, x: Images, y: Classes, rows: tuple[int, int]) -> int:
        """Sample-gradients per image of the validation: its maps, and its part of the training's."""
        one = method.explain(x[:1], y[:1]).gradients
        maps = 1 if self.classes is None else 2
        slope = int((one + method.slope_cost(one) if self.lam > 0 else one).max())
        single = int(one.max())
        trained = rows[0] + rows[1] * maps * (slope + single * KINDS[self.kind].remembers)
        return 2 * maps * single + -(-trained // len(x))


def _once(name: str, given: Any, where: torch.device, count: int = 2**31) -> Iterator[Pair]:
    """The pairs of the data, on the device of the network."""
    source: Iterable[Any] = [given] if asked.pairs(name, given) else given
    for each in source:
        x, y = asked.pair(name, each, count)
        yield x.detach().to(where), y.to(where)


def _trainable(model: nn.Module) -> nn.Module:
    """A copy with weights of its own; those that the model trains, or all of them where it trains none."""
    copied = copy.deepcopy(model)
    every = [p for p in copied.parameters() if p.is_floating_point()]
    some = [p for p in every if p.requires_grad] or every
    for weight in copied.parameters():
        weight.grad = None
    for weight in some:
        weight.requires_grad_()
    return copied


def _settle(copied: nn.Module, model: nn.Module) -> None:
    """The flags of the model itself again."""
    for weight, was in zip(copied.parameters(), model.parameters(), strict=True):
        weight.grad = None
        weight.requires_grad_(was.requires_grad)


def _reaches(loss: Tensor, weights: list[Tensor]) -> bool:
    if not loss.requires_grad:
        return False
    return any(g is not None for g in torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True))


def _device(model: Any) -> torch.device:
    return next(asked.network(model).parameters()).device
