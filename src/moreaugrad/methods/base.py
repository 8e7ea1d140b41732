"""The Captum shell of every method: tuples, targets, arguments, chunks, progress.

A method writes `compute(score, x, ...)`; `attribute` and `explain` are final and the same for all.
A call changes nothing in the model, the inputs or the global random state, also when it raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import put, roomy
from moreaugrad.methods import QUALITY
from moreaugrad.methods.call import Asked, Call, answer, arguments, black, further, plain, shape, target_told
from moreaugrad.methods.progress import progress
from moreaugrad.methods.traits import Traits
from moreaugrad.model import targets
from moreaugrad.model.noise import settle
from moreaugrad.model.packing import Packing
from moreaugrad.model.prepared import HALF, MANY, PRECISIONS, Engine
from moreaugrad.model.prepared import settle as precision_for
from moreaugrad.model.score import KINDS, ClassScore, safe_block, safe_rows
from moreaugrad.model.sharing import Engines, engines_of
from moreaugrad.results import Explanation
from moreaugrad.types import ForwardFunc, Images, Outcome, Target, Watch


@dataclass(frozen=True, eq=False)
class Method(Traits, Attribution):  # type: ignore[misc]
    """A way to explain a class score. `attribute` follows Captum to the letter; `explain` says more."""

    forward_func: ForwardFunc  # a module in evaluation mode, or any callable
    score: str = field(default="logit", kw_only=True)  # or prob, logprob
    precision: str | None = field(default=None, kw_only=True)  # float32, tf32, bfloat16, float16; None: by the device
    compile: bool | None = field(default=None, kw_only=True)  # None: for many images on a GPU
    apart: float | None = field(default=None, kw_only=True)  # second derivatives by gradients so far apart; None: exact

    def __post_init__(self) -> None:
        validate.one_of("score", self.score, KINDS)
        if self.precision is not None:
            validate.one_of("precision", self.precision, dict.fromkeys(PRECISIONS))
        validate.flag("compile", self.compile)
        if self.apart is not None:
            validate.positive("apart", self.apart)
        budget = getattr(self, "budget", None)
        if isinstance(budget, str):
            validate.one_of("budget", budget, QUALITY)
            object.__setattr__(self, "budget", QUALITY[budget])

    def __getstate__(self) -> dict[str, Any]:
        """What is stored or sent elsewhere: all but the engines, which are made again there."""
        return {key: value for key, value in vars(self).items() if key != "_engines"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _engines(self) -> Engines:
        """Kept from call to call, so that compiling is paid once."""
        return {} if self.once else engines_of(self.forward_func)  # one gradient runs the network itself, unprepared

    def compute(self, call: Call) -> Outcome:
        """What the method itself does."""
        raise AssertionError("a method must define compute")

    def compute_several(self, call: Call) -> list[Outcome]:
        """One outcome for each entry of `several`."""
        return [self.compute(call)]

    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(  # noqa: PLR0913
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        baselines: Any = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        create_graph: bool = False,
        show_progress: bool = False,
        callback: Watch | None = None,
    ) -> Any:
        """The map, as Captum returns it: a tensor or tuple like the inputs.

        `internal_batch_size` bounds the rows that reach the model, smaller than the batch too; calls with
        fewer are padded to it. The convergence delta is each image's optimality residual; of methods that compare
        with `baselines` it is the completeness gap. `create_graph` gives a map that can be differentiated again.
        """
        if return_convergence_delta and not self.has_convergence_delta():
            raise ValueError(f"{self.get_name()} has no convergence delta; leave return_convergence_delta=False")
        found = self._explain(
            Asked(inputs, target, additional_forward_args, baselines, internal_batch_size, create_graph, predict=False),
            show_progress,
            callback,
        )
        answers = [answer(inputs, each, return_convergence_delta) for each in found]
        return answers if self.several is not None else answers[0]

    def explain(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        baselines: Any = None,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        callback: Watch | None = None,
    ) -> Any:
        """The map with all that is known of it: an Explanation, or a list of them where a list of eta or sparsity
        was asked for. Without a target the predicted classes are explained."""
        asked = Asked(inputs, target, additional_forward_args, baselines, internal_batch_size, False, predict=True)
        found = self._explain(asked, show_progress, callback)
        return found if self.several is not None else found[0]

    def _explain(self, asked: Asked, show_progress: bool, callback: Watch | None) -> list[Explanation]:
        inputs, graph = asked.inputs, asked.create_graph
        given = validate.inputs(inputs)
        validate.evaluating(self.forward_func)
        validate.can("create_graph=True", graph, self.differentiable, self.get_name())
        target = validate.target(asked.target, len(given[0]))
        packing = Packing.of(given)
        x = packing.pack(given, graph)
        baseline = self._baseline(asked.baselines, given, packing)
        through = graph and not self.derived
        engine = self._engine(x, given, asked.internal_batch_size, through)
        extra = arguments(asked.arguments)
        score = ClassScore(engine, target, len(x), extra, self.score, packing.unpack, graph=through)
        cards = [x.device] if x.is_cuda else []
        with torch.inference_mode(False), torch.set_grad_enabled(graph), torch.random.fork_rng(cards):
            value = self._aim(score, x, asked.predict)
            seed = settle(getattr(self, "seed", 0))
            with progress(self.get_name(), show_progress, callback) as watch:
                whole = slice(0, len(x))
                outcomes = self._in_blocks(Call(score, x, packing, seed, watch, len(x), whole, baseline, graph))
        like = partial(shape, packing, whole=isinstance(inputs, tuple))
        return [
            Explanation(
                map=like(outcome.map),
                delta=like(outcome.delta),
                stderr=like(outcome.stderr),
                coarse=outcome.coarse,
                target=target_told(score.target, x),
                score=value,
                eta=outcome.eta,
                envelope=outcome.envelope,
                residual=outcome.residual,
                converged=outcome.converged,
                gradients=outcome.gradients,
                seed=seed if self.random else None,
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
        whole: list[Outcome] = []
        for block, start in enumerate(starts):
            some = slice(start, min(start + size, images))
            score = call.score.take(torch.arange(some.start, some.stop, device=call.x.device))
            watch = partial(further, call.watch, block, len(starts))
            one = replace(call, score=score, x=call.x[some], watch=watch, some=some, baseline=call.of(some))
            found = self._sound(one)
            whole = whole or [roomy(part, images) for part in found]
            for part, into in zip(found, whole, strict=True):
                put(part, into, some)
        return whole

    def _sound(self, call: Call) -> list[Outcome]:
        """The outcomes of a block; once more, in float32, where a reduced precision overflowed."""
        found = self.compute_several(call)
        return self.compute_several(call) if call.score.engine.overflowed() else found

    def options(self) -> Mapping[str, Any]:
        """What this method was told, for the record."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name != "forward_func"}

    def has_convergence_delta(self) -> bool:
        return False

    def _baseline(self, asked: Any, given: tuple[Tensor, ...], packing: Packing) -> Images | None:
        """What the inputs are compared with, in the form that methods take."""
        validate.can("baselines", asked is not None, self.reference is not None, self.get_name())
        if self.reference is None:
            return None
        if asked is None and self.reference == "black":
            asked = black(self.forward_func, given)
        return packing.pack(validate.baselines(0 if asked is None else asked, given))

    def _engine(self, x: Images, given: Sequence[Tensor], asked: int | None, graph: bool) -> Engine:
        """What will run the network: the one of the last call where that fits."""
        if asked is not None:
            validate.at_least("internal_batch_size", asked, 1)
        precision = precision_for("float32" if graph and self.precision is None else self.precision, given)
        twice = graph and self.apart is None  # what is compiled cannot be differentiated twice, and halves overflow
        if twice and precision in HALF:
            precision = "tf32" if validate.has_tf32(given[0]) else "float32"
        compiled = self.compile if self.compile is not None else x.is_cuda and len(x) >= MANY
        key = (precision, compiled and not twice, self.apart)
        engine = self._engines.setdefault(key, Engine(self.forward_func, *key))
        engine.rows = asked or safe_rows(x, self.per_image, key[1])
        return engine

    def _aim(self, score: ClassScore, x: Images, predict: bool) -> Tensor | None:
        """Settles the target and returns the score of each image; refuses a score that is no number.

        Where nothing is predicted and the network is ready, the first gradient tells whether all is well.
        """
        plain = self.once and not score.engine.compile and score.engine.precision not in HALF
        alone = score.graph and score.follows_weights  # then the model itself is run, and nothing is prepared
        quick = not predict and (plain or alone or score.engine.ready())
        value = None
        if quick:
            score.unseen = True
        else:
            output = score.outputs(x, targeted=not (predict and score.target is None))
            if predict and score.target is None and output.ndim == 2 and output.shape[1] > 1:
                score.target = output.argmax(1)
            validate.target_fits(score.target, tuple(output.shape), score.kind)
            value = targets.select(KINDS[score.kind](output.to(x.dtype)), score.target)
            validate.finite_score(value)
            if not plain:
                score.prepare(x, output)
        score.target = targets.placed(score.target, x)
        return value
