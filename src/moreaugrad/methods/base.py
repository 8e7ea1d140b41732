"""The Captum shell of every method: tuples, targets, arguments, chunks, progress.

A method writes `compute(score, x, ...)`; `attribute` and `explain` are final and the same for all.
A call changes nothing in the model, the inputs or the global random state, also when it raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from moreaugrad import checks
from moreaugrad.contracts import Counts, ForwardFunc, Images, Outcome, Target, Watch
from moreaugrad.core import targets
from moreaugrad.core.engine import HALF, MANY, PRECISIONS, Engine
from moreaugrad.core.engine import settle as precision_for
from moreaugrad.core.noise import Smoothing, settle
from moreaugrad.core.packing import Packing
from moreaugrad.core.scores import KINDS, ClassScore, SmoothedScore, safe_block, safe_rows
from moreaugrad.disk.explanation import Explanation
from moreaugrad.methods.progress import progress
from moreaugrad.shapes import joined


@dataclass(frozen=True, eq=False)
class Call:
    """One batch as a method sees it."""

    score: ClassScore
    x: Images
    packing: Packing
    seed: int
    watch: Watch
    images: int  # of the whole call
    some: slice  # those that x holds

    def each(self, number: int) -> Counts:
        """The same number for every image."""
        return torch.full((len(self.x),), number, device=self.x.device)

    def part(self, given: Any) -> Any:
        """What a caller gave for each image, cut to the images of this batch."""
        many = isinstance(given, Tensor | np.ndarray | list) and len(np.shape(given)) > 0 and self.images > 1
        return given[self.some] if many and len(given) == self.images else given

    def smoothed(self, smoothing: Smoothing) -> SmoothedScore:
        """The score under noise, each input of a tuple by its own range."""
        pieces = self.packing.split(self.x)
        scales = [smoothing.scale(piece) for piece in pieces]
        if len(pieces) > 1:
            wide = [scale.expand_as(piece).flatten(1) for scale, piece in zip(scales, pieces, strict=True)]
            scales = [torch.cat(wide, dim=1)]
        return SmoothedScore(self.score, smoothing, scales[0], self.seed)


@dataclass(frozen=True, eq=False)
class Method(Attribution):  # type: ignore[misc]
    """A way to explain a class score. `attribute` follows Captum to the letter; `explain` says more."""

    forward_func: ForwardFunc  # a module in evaluation mode, or any callable
    score: str = field(default="logit", kw_only=True)  # or prob, logprob
    precision: str | None = field(default=None, kw_only=True)  # float32, tf32, bfloat16, float16; None: by the device
    compile: bool | None = field(default=None, kw_only=True)  # None: for many images on a GPU

    def __post_init__(self) -> None:
        checks.one_of("score", self.score, KINDS)
        if self.precision is not None:
            checks.one_of("precision", self.precision, dict.fromkeys(PRECISIONS))
        checks.flag("compile", self.compile)

    def __getstate__(self) -> dict[str, Any]:
        """What is stored or sent elsewhere: all but the engines, which are made again there."""
        return {key: value for key, value in vars(self).items() if key != "_engines"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _engines(self) -> dict[tuple[str, bool], Engine]:
        """Kept from call to call, so that compiling is paid once."""
        return {}

    @property
    def noise(self) -> Smoothing | None:
        """The smoothing that makes the method random, if any."""
        return None

    @property
    def once(self) -> bool:
        """Whether one gradient per image is all: then it does not pay to make the network fast first."""
        return False

    @property
    def several(self) -> Sequence[Mapping[str, Any]] | None:
        """The options of each map, where several are made of each image."""
        return None

    def compute(self, call: Call) -> Outcome:
        """What the method itself does."""
        raise AssertionError("a method must define compute")

    def compute_several(self, call: Call) -> list[Outcome]:
        """One outcome for each entry of `several`."""
        return [self.compute(call)]

    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        show_progress: bool = False,
        callback: Watch | None = None,
    ) -> Any:
        """The map, as Captum returns it: a tensor or tuple like the inputs.

        `internal_batch_size` bounds the rows that reach the model, smaller than the batch too; calls with
        fewer are padded to it. The convergence delta is each image's optimality residual, not a completeness gap.
        """
        if return_convergence_delta and not self.has_convergence_delta():
            raise ValueError(f"{self.get_name()} has no convergence delta; leave return_convergence_delta=False")
        found = self._explain(
            inputs, target, additional_forward_args, internal_batch_size, show_progress, callback, predict=False
        )
        answers = [_answer(inputs, each, return_convergence_delta) for each in found]
        return answers if self.several is not None else answers[0]

    def explain(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        callback: Watch | None = None,
    ) -> Any:
        """The map with all that is known of it: an Explanation, or a list of them where a list of eta or sparsity
        was asked for. Without a target the predicted classes are explained."""
        found = self._explain(
            inputs, target, additional_forward_args, internal_batch_size, show_progress, callback, predict=True
        )
        return found if self.several is not None else found[0]

    def _explain(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target,
        additional_forward_args: Any,
        internal_batch_size: int | None,
        show_progress: bool,
        callback: Watch | None,
        predict: bool,
    ) -> list[Explanation]:
        given = checks.inputs(inputs)
        checks.evaluating(self.forward_func)
        target = checks.target(target, len(given[0]))
        packing = Packing.of(given)
        x = packing.pack(given)
        engine = self._engine(x, given, internal_batch_size)
        score = ClassScore(engine, target, len(x), _arguments(additional_forward_args), self.score, packing.unpack)
        cards = [x.device] if x.is_cuda else []
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(cards):
            value = self._aim(score, x, predict)
            seed = settle(getattr(self, "seed", 0))
            with progress(self.get_name(), show_progress, callback) as watch:
                outcomes = self._in_blocks(Call(score, x, packing, seed, watch, len(x), slice(0, len(x))))
        shape = partial(_shape, packing, whole=isinstance(inputs, tuple))
        return [
            Explanation(
                map=shape(outcome.map),
                delta=shape(outcome.delta),
                stderr=shape(outcome.stderr),
                target=_told(score.target, x),
                score=value,
                eta=outcome.eta,
                envelope=outcome.envelope,
                residual=outcome.residual,
                converged=outcome.converged,
                gradients=outcome.gradients,
                seed=seed if self.noise is not None else None,
                method=type(self).__name__,
                options={**self.options(), **engine.told(), **own},
            )
            for outcome, own in zip(outcomes, self.several or [{}], strict=True)
        ]

    def _in_blocks(self, call: Call) -> list[Outcome]:
        """The outcomes, a block of images at a time: they do not know of each other, and memory stays flat."""
        size, images = safe_block(call.x), call.images
        starts = range(0, images, size)
        if len(starts) == 1:
            return self._sound(call)
        found = []
        for block, start in enumerate(starts):
            some = slice(start, min(start + size, images))
            score = call.score.take(torch.arange(some.start, some.stop, device=call.x.device))
            watch = partial(_further, call.watch, block, len(starts))
            one = replace(call, score=score, x=call.x[some], watch=watch, some=some)
            found.append(self._sound(one))
        return [joined(each) for each in zip(*found, strict=True)]

    def _sound(self, call: Call) -> list[Outcome]:
        """The outcomes of a block; once more, in float32, where a reduced precision overflowed."""
        found = self.compute_several(call)
        return self.compute_several(call) if call.score.engine.overflowed() else found

    def options(self) -> Mapping[str, Any]:
        """What this method was told, for the record."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "forward_func"}

    def has_convergence_delta(self) -> bool:
        return False

    def _engine(self, x: Images, given: Sequence[Tensor], asked: int | None) -> Engine:
        """What will run the network: the one of the last call where that fits."""
        if asked is not None:
            checks.at_least("internal_batch_size", asked, 1)
        precision = precision_for(self.precision, given)
        compiled = self.compile if self.compile is not None else x.is_cuda and len(x) >= MANY
        engine = self._engines.setdefault((precision, compiled), Engine(self.forward_func, precision, compiled))
        engine.rows = asked or safe_rows(x, self.noise.samples if self.noise is not None else 1, compiled)
        return engine

    def _aim(self, score: ClassScore, x: Images, predict: bool) -> Tensor:
        """Settles the target and returns the score of each image; refuses a score that is no number."""
        output = score.outputs(x, targeted=not (predict and score.target is None))
        if predict and score.target is None and output.ndim == 2 and output.shape[1] > 1:
            score.target = output.argmax(1)
        checks.target_fits(score.target, tuple(output.shape), score.kind)
        value = targets.select(KINDS[score.kind](output.to(x.dtype)), score.target)
        checks.finite_score(value)
        # once, for in every step the host would wait for the device
        if isinstance(score.target, Tensor) and score.target.numel() == 1:
            score.target = int(score.target)
        elif isinstance(score.target, list) and isinstance(score.target[0], int):
            score.target = torch.tensor(score.target, device=x.device)
        if not self.once or score.engine.compile or score.engine.precision in HALF:
            score.prepare(x, output)
        return value


def _answer(inputs: Tensor | tuple[Tensor, ...], found: Explanation, delta: bool) -> Any:
    """A result as Captum returns it."""
    like = inputs if isinstance(inputs, tuple) else (inputs,)
    maps = tuple(m.to(t.dtype) for m, t in zip(_tuple(found.map), like, strict=True))
    answer = maps if isinstance(inputs, tuple) else maps[0]
    return (answer, found.residual) if delta else answer


def _further(watch: Watch, block: int, blocks: int, step: int, total: int, info: Mapping[str, Any]) -> None:
    """Progress of one of several blocks."""
    watch(block * total + step, blocks * total, info)


def _tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _arguments(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def _shape(packing: Packing, found: Images | None, *, whole: bool) -> Any:
    """A packed result in the user's shapes: a tuple where the inputs were one."""
    if found is None:
        return None
    pieces = packing.split(found)
    return pieces if whole else pieces[0]


def _told(target: Target, x: Images) -> Any:
    """The target as the result reports it: one class per image where there is one."""
    if isinstance(target, int):
        return torch.full((len(x),), target, dtype=torch.long, device=x.device)
    if isinstance(target, Tensor):
        return target.to(x.device).long().reshape(-1).expand(len(x))
    if isinstance(target, list) and isinstance(target[0], int):
        return torch.tensor(target, device=x.device)
    return target


def _plain(value: Any) -> Any:
    """An option as text or number."""
    return value if value is None or isinstance(value, int | float | str) else repr(value)
