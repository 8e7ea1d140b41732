"""The class score: the only place that runs a network and calls autograd on it.

Rows reach the model in chunks of one constant shape, padded, because a kernel chosen for another shape rounds
differently and the kinks of a network amplify that. Leaves nothing behind in the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from moreaugrad import validate
from moreaugrad.model import hessian
from moreaugrad.model.inputs import Owners, read_output, select_target, take_argument, take_target
from moreaugrad.model.prepared import HALF, MANY, PROBED, Engine, Prepared, choose_precision, numerics
from moreaugrad.threads import ALONE
from moreaugrad.types import ForwardFunc, Images, Output, PerImage, ScoreFunc, Target

log = logging.getLogger("moreaugrad")

LOOK = {"cpu": PROBED, "cuda": 16}  # rows of a call without a gradient: few, for a single image is padded to them
PHOTO = 3 * 224 * 224
ROW = 256 * 2**20  # bytes that one photo may need on its way through a large network and back
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": lambda output: output,
    "prob": lambda output: output.softmax(1),
    "logprob": lambda output: output.log_softmax(1),
}


def safe_rows(x: Images, samples: int = 1, compiled: bool = False) -> int:
    """A chunk that runs well, from the device, the shape and the way of running alone: never from the batch's length.

    On a GPU it is halved until it fits the free memory by a generous guess; `evaluate` halves it where the guess
    was not generous enough.
    """
    if x.is_cuda:
        size = max(0.25, x[0].numel() / PHOTO)  # small images leave a GPU idle, so take more of them
        rows = 128 if compiled or samples > 1 else 16
        free, _ = torch.cuda.mem_get_info(x.device)
        free += torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
        while rows > 2 and rows * ROW > free / 2:
            rows //= 2
        rows = max(2, int(rows / size))
        return rows if rows < 16 else rows // 16 * 16  # as tensor cores like it
    if samples == 1:
        return 1  # a CPU is full, and a single image is not padded
    # one image's samples at a time fill a CPU, and are then bit for bit the same in any batch
    return even_chunk(samples, max(2, min(256, int(4 * PHOTO / x[0].numel()))))


def even_chunk(rows: int, most: int) -> int:
    """The size of chunks that share out `rows` evenly, each of at most `most`: padding then costs next to nothing."""
    return -(-rows // -(-rows // most))


class ExactAttention(TorchFunctionMode):
    """Attention of this thread by the one kernel that has a second derivative.

    torch chooses kernels for the whole process, so others see the choice only while attention itself is computed.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (F.scaled_dot_product_attention, F.multi_head_attention_forward):
            return func(*args, **(kwargs or {}))
        with ALONE, sdpa_kernel(SDPBackend.MATH):
            return func(*args, **(kwargs or {}))


@dataclass(eq=False)
class ClassScore:
    """f_c(x): one output of a network per image, as logit, probability, log-probability, or any function of it.

    Works in the dtype of x, float32 or float64; `unpack` makes of it what the model takes.
    """

    engine: Engine  # runs the network
    target: Target
    images: int  # how many images the targets and arguments cover
    arguments: tuple[Any, ...] = ()
    kind: str | ScoreFunc = "logit"  # a name in KINDS, of class scores; or a function of all that the network returns
    unpack: Callable[[Tensor], tuple[Tensor, ...]] = field(default=lambda x: (x,))  # rows -> the model's inputs
    output: Output = None  # the part of what the network returns that is explained
    samples: int = 1
    random: bool = False
    of: Owners | None = None  # the images that x holds, where it does not hold all
    unchecked: bool = False  # whether the target has not been compared with an output yet
    graph: bool = False  # gradients that can be differentiated again
    weights: bool = True  # then also by the weights of the model

    def take(self, which: Owners) -> ClassScore:
        """The score of some images only."""
        return replace(self, of=which if self.of is None else self.of[which])

    def owners(self, x: Images) -> Owners:
        """The image that each row of x belongs to."""
        return torch.arange(len(x), device=x.device) if self.of is None else self.of

    def prepare(self, x: Images) -> None:
        """Makes the engine ready, by what the network says of the first images."""
        while True:
            size = self._look(x)
            rows, owners = pad(x.detach()[:size], self.owners(x)[:size], size)
            rows = rows.clone()  # a model may write to what it gets
            try:
                return self.engine.prepare(self.unpack(rows), self._arguments(owners))
            except torch.OutOfMemoryError as error:
                self.engine.halve_rows(size, error)

    def value_and_grad(self, x: Images, draw: int = 0, most: int | None = None) -> tuple[PerImage, Images]:
        return self.evaluate(x, self.owners(x), self.engine.rows)

    def product(self, x: Images, along: Images, draw: int = 0) -> Images:
        """The Hessian times one direction per image."""
        return self.evaluate(x, self.owners(x), self.engine.rows, along)[1]

    def evaluate(self, x: Images, owners: Owners, chunk: int, along: Images | None = None) -> tuple[PerImage, Images]:
        """Value and gradient of each row; row r belongs to image owners[r]. `along`: instead of the gradient the
        Hessian times along[r]."""
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        start = 0
        while start < len(x):
            size = min(chunk, self.engine.rows)
            stop = min(start + size, len(x))
            rows, padded = pad(x[start:stop], owners[start:stop], size)
            way = None if along is None else pad(along[start:stop], owners[start:stop], size)[0]
            try:
                once = way is None and not self.graph
                value, grad = self._gradient(rows, padded) if once else self._second_order(rows, padded, way)
            except torch.OutOfMemoryError as error:
                self.engine.halve_rows(size, error)
                continue
            except Exception as error:
                if not self.engine.stop_compiling(error):
                    raise
                continue
            values[start:stop], grads[start:stop] = value[: stop - start], grad[: stop - start]
            start = stop
        return values, grads

    def outputs(self, x: Images, check_target: bool = True) -> Tensor:
        """What the network says of each image, without a gradient."""
        found: list[Tensor] = []
        while sum(map(len, found)) < len(x):
            start, size = sum(map(len, found)), self._look(x)
            rows, owners = pad(x[start : start + size], self.owners(x)[start : start + size], size)
            rows = rows.clone()  # a model may write to what it gets
            try:
                with torch.no_grad(), numerics("float32", x.is_cuda):
                    output = self.run(rows, owners, plain=True)
            except torch.OutOfMemoryError as error:
                self.engine.halve_rows(size, error)
                continue
            if check_target:
                validate.target_fits(self.target, tuple(output.shape), self.kind)
            found.append(output[: len(x) - start].detach())
        return torch.cat(found)

    def values(self, output: Tensor, owners: Owners) -> PerImage:
        """The score that a row's outputs hold."""
        return select_target(self.scores(output), take_target(self.target, owners))

    def scores(self, output: Tensor) -> Tensor:
        """The scores of all classes that a row's outputs hold; a function has been applied to them already."""
        return KINDS[self.kind](output) if isinstance(self.kind, str) else output

    def read(self, found: Any, rows: int) -> Tensor:
        """The outputs in what the network returned for some rows: a tensor (rows, ...)."""
        return read_output(found, rows, self.output, None if isinstance(self.kind, str) else self.kind)

    def _gradient(self, rows: Images, owners: Owners) -> tuple[PerImage, Images]:
        """As the engine runs it fastest, without a graph."""
        engine, start = self.engine, perf_counter()
        with torch.inference_mode(False), torch.enable_grad(), numerics(engine.precision, rows.is_cuda):
            rows = rows.detach().clone().requires_grad_()
            output = self.read(engine(self.unpack(rows), self._arguments(owners)), len(rows))
            score = self._check(output, rows, owners)
            (grad,) = torch.autograd.grad(score.sum() * engine.scale, rows, allow_unused=True)
            validate.dependent(grad)
            if engine.compiled:  # a replay writes over the last one, maybe in another thread
                score, grad = score.detach().clone(), grad.clone()
        if not engine.proven:
            engine.learn(proven=True, warm_up=perf_counter() - start if engine.compiled else 0.0)
            if engine.compiled:
                log.info("compiled in %.1f s", engine.warm_up)
        engine.check_overflow(grad)
        return score.detach(), grad.detach() / engine.scale if engine.scale != 1 else grad.detach()

    def _second_order(self, rows: Images, owners: Owners, along: Images | None) -> tuple[PerImage, Images]:
        """The same once more differentiable, or already differentiated: on the model itself, or by differences."""
        engine = self.engine
        bare = replace(self, graph=engine.hessian_step is None, weights=self.weights and self.graph)

        def run(at: Images, keep: bool) -> tuple[PerImage, Images]:
            with torch.inference_mode(False), torch.enable_grad(), numerics(engine.precision, at.is_cuda):
                at = at if at.requires_grad else at.detach().clone().requires_grad_()
                score = bare.score_rows(at, owners)
                (grad,) = torch.autograd.grad(score.sum(), at, allow_unused=True, create_graph=keep)
                validate.dependent(grad)
                return score, grad

        def run_fast(at: Images, keep: bool) -> tuple[PerImage, Images]:
            value, grad = bare._gradient(at, owners)
            if engine.overflowed():
                value, grad = bare._gradient(at, owners)
            return value, grad

        way = run if engine.hessian_step is None else run_fast
        if along is not None:
            value, _, found = hessian.product(engine, way, rows, along)
        else:  # differences follow the rows alone
            beside = hessian.weights(engine.forward) if self.follows_weights else []
            value, found = run(rows, True) if beside is None else hessian.value_and_grad(engine, way, rows, beside)
        self.unchecked = bare.unchecked
        return value, found

    def score_rows(self, rows: Images, owners: Owners) -> PerImage:
        """The score of each row, in one call and with the graph that autograd makes of it."""
        with ExactAttention() if self.graph else nullcontext():
            output = self.run(rows, owners)
        return self._check(output, rows, owners)

    def _check(self, output: Tensor, rows: Images, owners: Owners) -> PerImage:
        """The score in the outputs for the rows; checked at the first time."""
        if self.unchecked:
            validate.target_fits(self.target, tuple(output.shape), self.kind)
        score = self.values(output.to(rows.dtype), owners)
        if self.unchecked:
            validate.finite_score(score.detach())
            self.unchecked = False
        validate.differentiable(score)
        return score

    @property
    def follows_weights(self) -> bool:
        """Whether a graph must lead to the model's own weights, or to what a function holds."""
        return self.weights and self.engine.hessian_step is None and hessian.weights(self.engine.forward) != []

    def run(self, rows: Images, owners: Owners, plain: bool = False) -> Tensor:
        """The network's outputs for the rows of some images; `plain`: as the caller's own model gives them."""
        exact = self.graph and (self.follows_weights or not self.engine.runs_twice_differentiable)
        found = self.engine(self.unpack(rows), self._arguments(owners), plain=plain or exact)
        return self.read(found, len(rows))

    def _look(self, x: Images) -> int:
        return min(self.engine.rows, LOOK.get(x.device.type, PROBED))

    def _arguments(self, owners: Owners) -> list[Any]:
        return [take_argument(argument, owners, self.images) for argument in self.arguments]


def make_score(
    model: ForwardFunc | Engine,
    x: Images,
    target: Target = None,
    *,
    kind: str | ScoreFunc = "logit",
    output: Output = None,
    arguments: tuple[Any, ...] = (),
    samples: int = 1,
    unpack: Callable[[Tensor], tuple[Tensor, ...]] | None = None,
) -> ClassScore:
    """The score of a batch: for a network as it is, or through an engine that a method prepared.

    `samples`: how many rows of one image are run together, from which the size of the chunks follows.
    """
    if not isinstance(model, Engine):
        model = Engine(model.forward if isinstance(model, Prepared) else model)
        model.rows = safe_rows(x, samples)
    dtype = x.dtype
    return ClassScore(model, target, len(x), arguments, kind, unpack or (lambda rows: (rows.to(dtype),)), output)


def choose_engine(
    prepared: Prepared,
    given: tuple[Tensor, ...],
    images: int,
    *,
    twice: bool = False,
    hessian_step: float | None = None,
) -> Engine:
    """The engine for these inputs. `twice`: gradients are differentiated again, exactly, where no step is given.

    What is compiled cannot be differentiated twice, and halves overflow.
    """
    asked = "float32" if twice and prepared.precision is None else prepared.precision
    precision = choose_precision(asked, given)
    exact = twice and hessian_step is None
    if exact and precision in HALF:
        precision = choose_precision(None, given)
    many = given[0].is_cuda and images >= MANY
    compiled = many if prepared.compile is None else prepared.compile
    return prepared.engine(precision, compiled and not exact, hessian_step)


def pad(x: Images, owners: Owners, size: int) -> tuple[Tensor, Tensor]:
    """The rows repeated up to `size`: real rows, so that padding can neither overflow nor be NaN."""
    if len(x) >= size:
        return x, owners
    again = torch.arange(size, device=x.device) % len(x)
    return x[again], owners[again]
