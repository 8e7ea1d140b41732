"""The Captum shell of every method: tuples, targets, arguments, chunks, progress.

A method writes `compute(score, x, ...)`; `attribute` and `explain` are final and the same for all.
A call changes nothing in the model, the inputs or the global random state, also when it raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from moreaugrad import checks
from moreaugrad.contracts import ForwardFunc, Images, Outcome, Target, Watch
from moreaugrad.core import targets
from moreaugrad.core.noise import Smoothing, settle
from moreaugrad.core.packing import Packing
from moreaugrad.core.scores import KINDS, ClassScore, SmoothedScore, safe_rows
from moreaugrad.disk.explanation import Explanation
from moreaugrad.methods.progress import progress


@dataclass(frozen=True, eq=False)
class Call:
    """One batch as a method sees it."""

    score: ClassScore
    x: Images
    packing: Packing
    seed: int
    watch: Watch

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

    def __post_init__(self) -> None:
        checks.one_of("score", self.score, KINDS)

    @property
    def noise(self) -> Smoothing | None:
        """The smoothing that makes the method random, if any."""
        return None

    def compute(self, call: Call) -> Outcome:
        """What the method itself does."""
        raise AssertionError("a method must define compute")

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
        like = inputs if isinstance(inputs, tuple) else (inputs,)
        maps = tuple(m.to(t.dtype) for m, t in zip(_tuple(found.map), like, strict=True))
        answer = maps if isinstance(inputs, tuple) else maps[0]
        return (answer, found.residual) if return_convergence_delta else answer

    def explain(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        callback: Watch | None = None,
    ) -> Explanation:
        """The map with all that is known of it. Without a target the predicted classes are explained."""
        return self._explain(
            inputs, target, additional_forward_args, internal_batch_size, show_progress, callback, predict=True
        )

    def _explain(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target,
        additional_forward_args: Any,
        internal_batch_size: int | None,
        show_progress: bool,
        callback: Watch | None,
        predict: bool,
    ) -> Explanation:
        given = checks.inputs(inputs)
        checks.evaluating(self.forward_func)
        target = checks.target(target, len(given[0]))
        packing = Packing.of(given)
        x = packing.pack(given)
        rows = self._rows(x, internal_batch_size)
        arguments = _arguments(additional_forward_args)
        score = ClassScore(self.forward_func, target, len(x), arguments, self.score, rows, packing.unpack)
        cards = [x.device] if x.is_cuda else []
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(cards):
            value = self._aim(score, x, predict)
            seed = settle(getattr(self, "seed", 0))
            with progress(self.get_name(), show_progress, callback) as watch:
                outcome = self.compute(Call(score, x, packing, seed, watch))
        whole = isinstance(inputs, tuple)
        return Explanation(
            map=_shape(packing, outcome.map, whole),
            delta=_shape(packing, outcome.delta, whole),
            stderr=_shape(packing, outcome.stderr, whole),
            target=_told(score.target, x),
            score=value,
            eta=outcome.eta,
            envelope=outcome.envelope,
            residual=outcome.residual,
            converged=outcome.converged,
            gradients=outcome.gradients,
            seed=seed if self.noise is not None else None,
            method=type(self).__name__,
            options=self.options(),
        )

    def options(self) -> Mapping[str, Any]:
        """What this method was told, for the record."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "forward_func"}

    def has_convergence_delta(self) -> bool:
        return False

    def _rows(self, x: Images, asked: int | None) -> int:
        if asked is None:
            return safe_rows(x, self.noise.samples if self.noise is not None else 1)
        checks.at_least("internal_batch_size", asked, 1)
        return asked

    def _aim(self, score: ClassScore, x: Images, predict: bool) -> Tensor:
        """Settles the target and returns the score of each image; refuses a score that is no number."""
        output = score.outputs(x, targeted=not (predict and score.target is None))
        if predict and score.target is None and output.ndim == 2 and output.shape[1] > 1:
            score.target = output.argmax(1)
        checks.target_fits(score.target, tuple(output.shape), score.kind)
        value = targets.select(KINDS[score.kind](output.to(x.dtype)), score.target)
        checks.finite_score(value)
        return value


def _tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _arguments(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def _shape(packing: Packing, found: Images | None, whole: bool) -> Any:
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
