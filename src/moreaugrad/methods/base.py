"""What every method shares: Captum's calling convention, targets, blocks of images, progress, and the result.

A method writes `compute(call)`; `attribute` and `explain` are the same for all. A call changes nothing in the model,
the inputs or the global random state, also when it raises.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, TypedDict, Unpack, cast, overload

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import allocate, write_rows
from moreaugrad.methods import QUALITY
from moreaugrad.model.inputs import Packing, black_baseline, place_target, report_target
from moreaugrad.model.prepared import HALF, PRECISIONS, Engine, Prepared
from moreaugrad.model.score import KINDS, PHOTO, ClassScore, choose_engine, make_score, safe_rows
from moreaugrad.model.smoothing import SmoothedScore, Smoothing, draw_seed
from moreaugrad.results import Explanation, Option
from moreaugrad.source import InputSource
from moreaugrad.types import Counts, ForwardFunc, Images, Output, ScoreFunc, Target, Watch

Inputs = Tensor | tuple[Tensor, ...]


class CallOptions(TypedDict, total=False):
    """The keywords of `attribute`, for type checkers."""

    additional_forward_args: Any
    baselines: Any
    internal_batch_size: int | None
    create_graph: bool
    show_progress: bool
    callback: Watch | None


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
    baseline: Images | None = None  # what x is compared with, where the method compares
    graph: bool = False  # whether the map is to be differentiated again
    seeds: Sequence[int] | None = None  # one for each image of the whole call, instead of `seed`
    statistics: bool = False  # whether the result keeps the moments that all statistics are made of

    def each(self, number: int) -> Counts:
        """The same number for every image."""
        return torch.full((len(self.x),), number, device=self.x.device)

    def part(self, given: Any) -> Any:
        """What a caller gave for each image, cut to the images of this batch."""
        many = isinstance(given, Tensor | np.ndarray | list) and len(np.shape(given)) > 0 and self.images > 1
        return given[self.some] if many and len(given) == self.images else given

    def smoothed(self, smoothing: Smoothing) -> SmoothedScore:
        """The score under noise."""
        return SmoothedScore.of(self.score, smoothing, self.x, self.packing, self.seed, self.seeds)


@dataclass(frozen=True, eq=False)
class Method(Attribution, metaclass=validate.CheckedOptions):  # type: ignore[misc]
    """A way to explain a class score: the base of all methods, and of your own.

    A subclass is a frozen dataclass that defines `compute(call)`, which returns an Explanation of the packed batch
    `call.x` with at least `map` and `gradients`; it may override the properties below. Everything else, from Captum's
    calling convention to chunks and progress, is done here.

    Args:
        forward_func: a module in evaluation mode, any callable that returns scores of shape (N, classes), or what
            `prepare` returns.
        score: what is explained: "logit", "prob" or "logprob" of the class; or a function from what the network
            returns to scores (N, K), of which `target` picks one, or (N,), one number per row and no target. It gets
            rows in chunks, so it must work row by row, with masks that broadcast over the rows.
        output: the part of a tuple, list, dict or object that the network returns, where it returns no tensor and
            nothing with `.logits`: a name, a position or a function. A `score` function gets that part; without
            `output` it gets all.
        precision: "float32", "tf32", "bfloat16" or "float16"; None chooses by the device.
        compile: whether to compile the network; None compiles for many images on a GPU.
        hessian_step: distance between the gradients of finite-difference Hessian products; None takes exact ones.

    Example:
        >>> class InputTimesGradient(mg.Method):
        ...     def compute(self, call):
        ...         _, grad = call.score.value_and_grad(call.x)
        ...         return mg.Explanation(map=call.x * grad, gradients=call.each(1))
        >>> InputTimesGradient(net).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    renamed_options: ClassVar[Mapping[str, str]] = {"apart": "hessian_step", "grad_mode": "derivative"}

    forward_func: ForwardFunc
    score: str | ScoreFunc = field(default="logit", kw_only=True)
    output: Output = field(default=None, kw_only=True)
    precision: str | None = field(default=None, kw_only=True)
    compile: bool | None = field(default=None, kw_only=True)
    hessian_step: float | None = field(default=None, kw_only=True)
    prepared: Prepared | None = field(default=None, kw_only=True, repr=False)  # shared by copies with other options

    def __post_init__(self) -> None:
        _check_score(self.score, self.output)
        if self.precision is not None:
            validate.one_of("precision", self.precision, dict.fromkeys(PRECISIONS))
        validate.flag("compile", self.compile)
        if self.hessian_step is not None:
            validate.positive("hessian_step", self.hessian_step)
        budget = getattr(self, "budget", None)
        if isinstance(budget, str):
            validate.one_of("budget", budget, QUALITY)
            object.__setattr__(self, "budget", QUALITY[budget])
        self._share_prepared()

    def _share_prepared(self) -> None:
        """Takes over a prepared network, or makes one of its own."""
        given: Any = self.forward_func
        if isinstance(given, Prepared):
            object.__setattr__(self, "forward_func", given.forward)
            object.__setattr__(self, "precision", self.precision or given.precision)
            object.__setattr__(self, "compile", given.compile if self.compile is None else self.compile)
        else:
            same = self.prepared is not None and self.prepared.forward is given
            given = self.prepared if same else Prepared(given)
        object.__setattr__(self, "prepared", given)

    # What a method may say of itself; asked by the shell, the attacks and the command line.

    @property
    def noise(self) -> Smoothing | None:
        """The smoothing that makes the method random, if any."""
        return None

    @property
    def per_image(self) -> int:
        """Number of model rows evaluated together per image."""
        return 1 if self.noise is None else self.noise.samples

    @property
    def random(self) -> bool:
        """Whether another seed gives another map."""
        return self.noise is not None

    @property
    def seeded_by_image(self) -> bool:
        """Whether images solved together may each have noise of their own: where all of it is that of the score."""
        return not hasattr(self, "seed")

    @property
    def once(self) -> bool:
        """Whether one gradient per image is all: then it does not pay to make the network fast first."""
        return False

    @property
    def differentiable(self) -> bool:
        """Whether the map itself has a derivative that `create_graph=True` can give."""
        return False

    @property
    def derived(self) -> bool:
        """Whether the derivative is found beside the map: then the map itself is made without a graph."""
        return False

    @property
    def second_order(self) -> bool:
        """Whether that derivative needs the network's second one, which a network with kinks does not have."""
        return True

    def slope_cost(self, gradients: Counts) -> Counts:
        """What the derivative of a map costs beside the map: each gradient is differentiated, which counts as two; a
        map that took none takes one."""
        return (2 * gradients).clamp_min(1)

    @property
    def reference(self) -> str | None:
        """For methods that compare with a baseline: the default one, 'black' or 'zero'."""
        return None

    @property
    def several(self) -> Sequence[Mapping[str, Any]] | None:
        """The options of each map, where several are made of each image."""
        return None

    def has_convergence_delta(self) -> bool:
        return False

    @property
    def counts_votes(self) -> bool:
        """Whether the map counts in how many copies an entry is among the largest: then it is flat, and has no slope
        that an attack could follow."""
        return False

    def with_statistic(self, name: str) -> Method:
        """The method whose map is another statistic of the same gradients: what leads an attack where its own map is
        flat. A method that takes no statistic refuses."""
        raise ValueError(
            f"slope={name!r} needs a method that averages gradients under noise, got {self.get_name()}; leave slope out"
        )

    def options(self) -> Mapping[str, Any]:
        """The options of this method, for the record."""
        values = {each.name: getattr(self, each.name) for each in option_fields(type(self))}
        return {name: value if isinstance(value, Option) else describe(value) for name, value in values.items()}

    def compute(self, call: Call) -> Explanation | list[Explanation]:
        """What the method itself does: the explanation of a packed batch, or one for each entry of `several`."""
        raise NotImplementedError(f"{type(self).__name__} must define compute(call)")

    @overload
    def attribute(self, inputs: Tensor, target: Target = ..., *args: Any, **options: Unpack[CallOptions]) -> Tensor: ...
    @overload
    def attribute(
        self, inputs: tuple[Tensor, ...], target: Target = ..., *args: Any, **options: Unpack[CallOptions]
    ) -> tuple[Tensor, ...]: ...
    @overload
    def attribute(
        self, inputs: Inputs, target: Target = ..., *args: Any, return_convergence_delta: Literal[True], **options: Any
    ) -> tuple[Any, Tensor]: ...

    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(  # noqa: PLR0913
        self,
        inputs: Any,
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
        """Computes the map in Captum's calling convention.

        Args:
            inputs: a tensor of shape (N, ...), or a tuple of tensors for a network with several inputs.
            target: the output to explain, in any of Captum's forms: an int, a list or tensor with one per image, ...
            additional_forward_args: further arguments of the network.
            baselines: what the inputs are compared with, for the methods that compare.
            internal_batch_size: most rows in one call of the network; calls with fewer are padded to it.
            return_convergence_delta: whether to return each image's optimality residual too; for methods with
                `baselines` it is the completeness gap.
            create_graph: whether the map can be differentiated again.
            show_progress: whether to draw a progress bar.
            callback: called with (step, total, what is known so far).

        Returns:
            A tensor or tuple like the inputs; with `return_convergence_delta` a pair of that and one number per image.
            For a path of several eta or sparsity values, a list of them.
        """
        validate.flag("return_convergence_delta", return_convergence_delta)
        if return_convergence_delta and not self.has_convergence_delta():
            raise ValueError(f"{self.get_name()} has no convergence delta; leave return_convergence_delta=False")
        found = self._explain(
            inputs,
            target,
            additional_forward_args,
            baselines=baselines,
            internal_batch_size=internal_batch_size,
            create_graph=create_graph,
            progress=(show_progress, callback),
        )
        answers = [_captum_answer(inputs, each, return_convergence_delta) for each in found]
        return answers if self.several is not None else answers[0]

    def explain(  # noqa: PLR0913
        self,
        inputs: Inputs,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        baselines: Any = None,
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
        callback: Watch | None = None,
        seeds: Sequence[int] | None = None,
        statistics: bool = True,
    ) -> Explanation:
        """Computes the map with everything that is known about it.

        Args:
            inputs: a tensor of shape (N, ...), or a tuple of tensors for a network with several inputs.
            target: as in `attribute`; None explains the predicted class of each image.
            additional_forward_args: further arguments of the network.
            baselines: what the inputs are compared with, for the methods that compare.
            internal_batch_size: most rows in one call of the network.
            show_progress: whether to draw a progress bar; None: where somebody watches, after two seconds.
            callback: called with (step, total, what is known so far): a dictionary, in which "map" may be a function
                that makes the map so far.
            seeds: one for each image instead of the method's own, so that errors of different maps are independent.
                Each map is then what the image alone has with its seed.
            statistics: whether `found.statistics` is kept, where the method takes one. The map is the same without,
                and a GPU is faster.

        Returns:
            An Explanation; for a path of several eta or sparsity values use `explain_path`.

        Example:
            >>> mg.SmoothGrad(net, samples=8).explain(x).map.shape
            torch.Size([2, 3, 16, 16])
        """
        found = self._explain(
            inputs,
            target,
            additional_forward_args,
            baselines=baselines,
            internal_batch_size=internal_batch_size,
            predict=True,
            progress=(show_progress, callback),
            seeds=seeds,
            statistics=statistics,
        )
        source = InputSource.of(inputs if isinstance(inputs, tuple) else (inputs,), self.forward_func)
        found = [replace(each, source=source) for each in found]
        return cast(Explanation, found) if self.several is not None else found[0]  # a path gives its whole list

    def explain_path(self, inputs: Inputs, target: Target = None, **options: Any) -> list[Explanation]:
        """Computes the maps of a path: of a method that was given several eta or sparsity values.

        Args:
            inputs: as in `explain`.
            target: as in `explain`.
            **options: the other arguments of `explain`.

        Returns:
            One Explanation per value, in their order.

        Example:
            >>> path = mg.SparseMoreauGrad(net, sparsity=[0.1, 0.5], budget=80).explain_path(x)
            >>> [round(float(each.kept[0]), 2) for each in path]
            [0.1, 0.5]
        """
        found: Any = self.explain(inputs, target, **options)
        return [found] if self.several is None else found

    def _explain(  # noqa: PLR0913
        self,
        inputs: Any,
        target: Target,
        arguments: Any,
        *,
        baselines: Any = None,
        internal_batch_size: int | None = None,
        create_graph: bool = False,
        predict: bool = False,
        progress: tuple[bool | None, Watch | None] = (False, None),
        seeds: Sequence[int] | None = None,
        statistics: bool = False,
    ) -> list[Explanation]:
        """`predict`: a missing target is the predicted class."""
        given = validate.inputs(inputs)
        _check_arguments(create_graph, statistics, *progress)
        if seeds is not None:
            _check_seeds(seeds, len(given[0]), self)
        validate.evaluating(self.forward_func)
        validate.can("create_graph=True", create_graph, self.differentiable, self.get_name())
        target = validate.target(target, len(given[0]))
        packing = Packing.of(given)
        x = packing.pack(given, create_graph)
        baseline = self._pack_baselines(baselines, given, packing)
        through = create_graph and not self.derived
        engine = self._engine(x, given, internal_batch_size, through)
        extra = () if arguments is None else arguments if isinstance(arguments, tuple) else (arguments,)
        reading: Any = {"kind": self.score, "output": self.output, "arguments": extra, "unpack": packing.unpack}
        score = make_score(engine, x, target, **reading)
        score.graph = through
        cards = [x.device] if x.is_cuda else []
        with torch.inference_mode(False), torch.set_grad_enabled(create_graph), torch.random.fork_rng(cards):
            value = self._choose_target(score, x, predict)
            seed = draw_seed(getattr(self, "seed", 0) if seeds is None or len(x) > 1 else seeds[0])
            seeds = None if len(x) == 1 else seeds
            with show_progress(self.get_name(), *progress) as watch:
                whole = slice(0, len(x))
                call = Call(score, x, packing, seed, watch, len(x), whole, baseline, create_graph, seeds, statistics)
                parts = self._in_blocks(call)
        shape = partial(_unpack, packing, isinstance(inputs, tuple))
        return [
            replace(
                part,
                map=shape(part.map),
                delta=shape(part.delta),
                stderr=shape(part.stderr),
                moments=_unpack_moments(packing, isinstance(inputs, tuple), part.moments),
                target=report_target(score.target, x),
                score=value,  # type: ignore[arg-type]
                seed=seed if self.random and seeds is None else None,
                method=type(self).__name__,
                options={**self.options(), **engine.describe(), **own},
            )
            for part, own in zip(parts, self.several or [{}], strict=True)
        ]

    def _in_blocks(self, call: Call) -> list[Explanation]:
        """Computes a block of images at a time: they do not know of each other, and memory stays flat.

        A block in which a reduced precision overflowed is computed again in float32.
        """
        size, images = safe_block(call.x), call.images
        starts = range(0, images, size)
        whole: list[Explanation] = []
        for block, start in enumerate(starts):
            some = slice(start, min(start + size, images))
            one = call if len(starts) == 1 else _take_block(call, some, block, len(starts))
            found = self._compute_block(one)
            parts = found if isinstance(found, list) else [found]
            for part in parts:
                validate.finite_map(part.map)
            if len(starts) == 1:
                return parts
            whole = whole or [allocate(part, images) for part in parts]
            for part, into in zip(parts, whole, strict=True):
                write_rows(part, into, some)
        return whole

    def _compute_block(self, call: Call) -> Explanation | list[Explanation]:
        try:
            found = self.compute(call)
        except ValueError:  # where no gradient was finite
            if not call.score.engine.overflowed():
                raise
            return self.compute(call)
        return self.compute(call) if call.score.engine.overflowed() else found

    def _pack_baselines(self, given: Any, inputs: tuple[Tensor, ...], packing: Packing) -> Images | None:
        """What the inputs are compared with, in the form that methods take."""
        validate.can("baselines", given is not None, self.reference is not None, self.get_name())
        if self.reference is None:
            return None
        if given is None:
            given = black_baseline(self.forward_func, inputs) if self.reference == "black" else 0
        return packing.pack(validate.baselines(given, inputs))

    def _engine(self, x: Images, given: tuple[Tensor, ...], rows: int | None, graph: bool) -> Engine:
        """What runs the network: shared with the other calls where that fits."""
        if rows is not None:
            validate.at_least("internal_batch_size", rows, 1)
        # one gradient runs the network itself, unprepared, and leaves what others prepared alone
        source = Prepared(self.forward_func) if self.once or self.prepared is None else self.prepared
        source = replace(source, precision=self.precision, compile=self.compile)
        engine = choose_engine(source, given, len(x), twice=graph, hessian_step=self.hessian_step)
        return engine.for_call(rows or safe_rows(x, self.per_image, engine.compile))

    def _choose_target(self, score: ClassScore, x: Images, predict: bool) -> Tensor | None:
        """Settles the target, prepares the network, and returns the score of each image where it was predicted.

        Where nothing is predicted, the first gradient tells whether target and score are well.
        """
        value = None
        if predict:
            output = score.outputs(x, check_target=score.target is not None)
            if score.target is None and output.ndim == 2 and output.shape[1] > 1:
                score.target = output.argmax(1)
            validate.target_fits(score.target, tuple(output.shape), score.kind)
            value = score.values(output.to(x.dtype), score.owners(x))
            validate.finite_score(value)
        score.unchecked = not predict
        plain = self.once and not score.engine.compile and score.engine.precision not in HALF
        if not plain and not (score.graph and score.follows_weights):  # else the model itself is run
            score.prepare(x)
        score.target = place_target(score.target, x)
        return value


@dataclass(frozen=True, eq=False)
class NoisyMethod(Method):
    """A method under noise: `smoothing`, or its parts `noise_level`, `sigma` and `samples` in the method's own call."""

    noise_level: InitVar[float | None] = field(default=None, kw_only=True)
    sigma: InitVar[float | None] = field(default=None, kw_only=True)
    samples: InitVar[int | None] = field(default=None, kw_only=True)
    smoothing: Smoothing | None = field(default_factory=Smoothing, kw_only=True)
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    needs_noise: ClassVar[bool] = False

    def __post_init__(self, noise_level: float | None, sigma: float | None, samples: int | None) -> None:
        super().__post_init__()
        given = {"noise_level": noise_level, "sigma": sigma, "samples": samples}
        given = {name: value for name, value in given.items() if value is not None}
        if given:
            object.__setattr__(self, "smoothing", self._smoothing_of(given))
        smoothing: object = self.smoothing
        if smoothing is None and self.needs_noise:
            raise ValueError("smoothing must be a Smoothing, got None; without noise use the method `gradient`")
        if smoothing is not None and not isinstance(smoothing, Smoothing):
            raise TypeError(
                f"smoothing must be a Smoothing or None, got {smoothing!r}; write Smoothing(noise_level=0.1)"
            )
        validate.seed(self.seed)

    def _smoothing_of(self, given: dict[str, Any]) -> Smoothing | None:
        """The default smoothing with these parts; a noise level of 0 is none."""
        make: Any = next(each.default_factory for each in fields(self) if each.name == "smoothing")
        default: Smoothing = make()
        if not isinstance(self.smoothing, Smoothing) or self.smoothing != default:
            name, value = next(iter(given.items()))
            raise ValueError(
                f"smoothing and {', '.join(given)} exclude each other, got {self.smoothing!r} and {name}={value}; give "
                f"one of them, in a copy of a method smoothing=replace(method.smoothing, {name}={value})"
            )
        if "noise_level" in given and "sigma" in given:
            raise ValueError(
                "noise_level (relative to each image's range) and sigma (absolute) exclude each other, "
                f"got noise_level={given['noise_level']} and sigma={given['sigma']}; give one"
            )
        for name in ("noise_level", "sigma"):
            if name in given:
                validate.not_negative(name, given[name])
        if 0 in (given.get("noise_level"), given.get("sigma")):
            if "samples" in given:
                raise ValueError(f"samples must be left out where there is no noise, got samples={given['samples']}")
            return None
        absolute = {"noise_level": None} if "sigma" in given and "noise_level" not in given else {}
        return replace(default, **absolute | given)

    @property
    def noise(self) -> Smoothing | None:
        return self.smoothing

    @property
    def seeded_by_image(self) -> bool:
        return True


def describe(option: object) -> str:
    """An option in a record: functions by their names, for their repr differs from run to run."""
    name = getattr(option, "__qualname__", None)
    return f"{getattr(option, '__module__', '')}.{name}" if isinstance(name, str) else repr(option)


def _check_score(score: object, output: object) -> None:
    if isinstance(score, str):
        validate.one_of("score", score, KINDS)
    elif not callable(score):
        raise TypeError(
            f"score must be one of {list(KINDS)}, or a function from what the model returns to scores, got {score!r}"
        )
    if output is not None and (isinstance(output, bool) or not (isinstance(output, str | int) or callable(output))):
        raise TypeError(
            "output must be a name, a position or a function that picks a part of what the model returns, or None, "
            f"got {output!r}"
        )


def _check_arguments(create_graph: object, statistics: object, bar: object, callback: object) -> None:
    for name, given in {"create_graph": create_graph, "statistics": statistics, "show_progress": bar}.items():
        validate.flag(name, given)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of (step, total, info), got {type(callback).__name__}")


def _check_seeds(seeds: Sequence[int], images: int, method: Method) -> None:
    if not isinstance(seeds, Sequence):
        raise TypeError(f"seeds must be a list with one number per image, got {type(seeds).__name__}")
    if len(seeds) != images:
        raise ValueError(f"seeds must be one per image, got {len(seeds)} for {images} images")
    for seed in seeds:
        validate.at_least("seeds", seed, 0)
    if images > 1 and not method.seeded_by_image:
        raise ValueError(
            f"seeds must be left out for several images with {method.get_name()}, which draws one noise for all; "
            "explain them one by one, each with its seed"
        )


def safe_block(x: Images) -> int:
    """How many images to solve together: enough to fill a device, few enough that memory does not grow with more."""
    return max(1, int((64 if x.is_cuda else 16) * PHOTO / x[0].numel()))


def option_fields(kind: type[Method]) -> list[Any]:
    """The dataclass fields that are options of a method."""
    return [each for each in fields(kind) if each.name not in ("forward_func", "prepared", "expanded")]


@contextmanager
def show_progress(title: str, bar: bool | None, callback: Watch | None) -> Iterator[Watch]:
    """A watcher that draws a bar, calls back, both or neither. The bar is closed in any case.

    `bar`: None draws one where somebody watches, and only if it takes longer than two seconds.
    """
    drawn = None
    if bar or (bar is None and _is_watched()):
        from tqdm.auto import tqdm

        drawn = tqdm(desc=title, unit="step", delay=0 if bar else 2)

    def watch(step: int, total: int, info: Mapping[str, Any]) -> None:
        if drawn is not None:
            drawn.total = total
            drawn.update(step - drawn.n)
        if callback is not None:
            callback(step, total, info)

    try:
        yield watch
    finally:
        if drawn is not None:
            drawn.close()


def _is_watched() -> bool:
    """Whether the output is a terminal, or a notebook that can draw bars."""
    return sys.stderr.isatty() or ("ipykernel" in sys.modules and find_spec("ipywidgets") is not None)


def _take_block(call: Call, some: slice, block: int, blocks: int) -> Call:
    def watch(step: int, total: int, info: Mapping[str, Any]) -> None:
        call.watch(block * total + step, blocks * total, info)

    score = call.score.take(torch.arange(some.start, some.stop, device=call.x.device))
    baseline = None if call.baseline is None else call.baseline[some]
    return replace(call, score=score, x=call.x[some], watch=watch, some=some, baseline=baseline)


def _unpack(packing: Packing, whole: bool, found: Any) -> Any:
    """A packed result in the user's shapes: a tuple where the inputs were one."""
    if found is None:
        return None
    pieces = packing.split(found)
    return pieces if whole else pieces[0]


def _unpack_moments(packing: Packing, whole: bool, found: Tensor | None) -> Any:
    """The moments in the user's shapes, each as `_unpack` does."""
    if found is None or not whole:
        return None if found is None else torch.stack([packing.split(each)[0] for each in found.unbind(1)], 1)
    pieces = zip(*(packing.split(each) for each in found.unbind(1)), strict=True)
    return tuple(torch.stack(piece, 1) for piece in pieces)


def _captum_answer(inputs: Inputs, found: Explanation, delta: bool) -> Any:
    """A result as Captum returns it."""
    like = inputs if isinstance(inputs, tuple) else (inputs,)
    parts = found.map if isinstance(found.map, tuple) else (found.map,)
    maps = tuple(part.to(t.dtype) for part, t in zip(parts, like, strict=True))
    answer = maps if isinstance(inputs, tuple) else maps[0]
    return (answer, found.residual) if delta else answer
