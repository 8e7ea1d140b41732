"""The class score: the only place that runs a network and calls autograd on it.

Rows reach the model in chunks of one constant shape, padded, because a kernel chosen for another
shape rounds differently and the kinks of a network amplify that. Leaves nothing behind in the model.
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
from torch.nn.attention import SDPBackend, sdpa_kernel

from moreaugrad import validate
from moreaugrad.model import hessian as again
from moreaugrad.model import targets
from moreaugrad.model.prepared import Engine, numerics
from moreaugrad.types import Images, PerImage, Target

log = logging.getLogger("moreaugrad")

LOOK = {"cpu": 4, "cuda": 16}  # rows of a call without a gradient: few, for a single image is padded to them
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
    # one image's samples at a time fill a CPU, and are then bit for bit the same in any company
    return min(samples, max(2, min(256, int(4 * PHOTO / x[0].numel()))))


def safe_block(x: Images) -> int:
    """How many images to solve together: enough to fill a device, few enough that memory does not grow with more."""
    return max(1, int((64 if x.is_cuda else 16) * PHOTO / x[0].numel()))


@dataclass(eq=False)
class ClassScore:
    """f_c(x): one output of a network per image, as logit, probability or log-probability.

    Works in the dtype of x, float32 or float64; `unpack` makes of it what the model takes.
    """

    engine: Engine  # what runs the network
    target: Target
    images: int  # how many images the targets and arguments speak of
    arguments: tuple[Any, ...] = ()
    kind: str = "logit"
    unpack: Callable[[Tensor], tuple[Tensor, ...]] = field(default=lambda x: (x,))  # rows -> the model's inputs
    samples: int = 1
    random: bool = False
    of: targets.Owners | None = None  # the images that x holds, where it does not hold all
    unseen: bool = False  # whether the target has not been held against an output yet
    graph: bool = False  # gradients that can be differentiated again
    weights: bool = True  # then also by the weights of the model

    def take(self, which: targets.Owners) -> ClassScore:
        """The score of some images only."""
        return replace(self, of=which if self.of is None else self.of[which])

    def prepare(self, x: Images, output: Tensor) -> None:
        """Makes the engine ready, by what the network said of the first images."""
        while True:
            size = self._look(x)
            rows, owners = padded_to(x[:size], self.everyone(x)[:size], size)
            wanted = output[torch.arange(size, device=output.device) % len(output)]
            try:
                return self.engine.prepare(self.unpack(rows), self._arguments(owners), wanted)
            except torch.OutOfMemoryError as error:
                self.engine.halve(size, error)

    def value_and_grad(self, x: Images, draw: int = 0, most: int | None = None) -> tuple[PerImage, Images]:
        return self.evaluate(x, self.everyone(x), self.engine.rows)

    def product(self, x: Images, along: Images, draw: int = 0) -> Images:
        """The Hessian times one direction per image."""
        return self.evaluate(x, self.everyone(x), self.engine.rows, along)[1]

    def evaluate(
        self, x: Images, owners: targets.Owners, chunk: int, along: Images | None = None
    ) -> tuple[PerImage, Images]:
        """Value and gradient of each row; row r belongs to image owners[r]. `along`: instead of the gradient the
        Hessian times along[r]."""
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        start = 0
        while start < len(x):
            size = min(chunk, self.engine.rows)
            stop = min(start + size, len(x))
            try:
                way = None if along is None else along[start:stop]
                value, grad = self._chunk(x[start:stop], owners[start:stop], size, way)
            except torch.OutOfMemoryError as error:
                self.engine.halve(size, error)
                continue
            values[start:stop], grads[start:stop] = value, grad
            start = stop
        return values, grads

    def outputs(self, x: Images, targeted: bool = True) -> Tensor:
        """What the network says of each image, without a gradient."""
        everyone = self.everyone(x)
        found: list[Tensor] = []
        while sum(map(len, found)) < len(x):
            start, size = sum(map(len, found)), self._look(x)
            rows, owners = padded_to(x[start : start + size], everyone[start : start + size], size)
            try:
                with torch.no_grad(), numerics("float32", x.is_cuda):
                    output = self.told(self.engine.original, rows, owners)
            except torch.OutOfMemoryError as error:
                self.engine.halve(size, error)
                continue
            if targeted:
                validate.target_fits(self.target, tuple(output.shape), self.kind)
            found.append(output[: len(x) - start].detach())
        return torch.cat(found)

    def _chunk(
        self, x: Images, owners: targets.Owners, size: int, along: Images | None = None
    ) -> tuple[PerImage, Images]:
        rows, padded = padded_to(x, owners, size)
        if self.graph or along is not None:
            way = None if along is None else padded_to(along, owners, size)[0]
            value, grad = self._again(rows, padded, way)
        else:
            value, grad = self._once(rows, padded)
        return value[: len(x)], grad[: len(x)]

    def _once(self, rows: Images, owners: targets.Owners) -> tuple[PerImage, Images]:
        """As the engine runs it fastest, without a graph."""
        engine, start = self.engine, perf_counter()
        with torch.inference_mode(False), torch.enable_grad(), numerics(engine.precision, rows.is_cuda):
            try:
                score, grad = self._gradient(rows, owners)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if not engine.give_up(error):
                    raise
                score, grad = self._gradient(rows, owners)
        if engine.compiled and not engine.proven:
            engine.warm_up = perf_counter() - start
            log.info("compiled in %.1f s", engine.warm_up)
        engine.proven = True
        engine.note(grad)
        return score, grad

    def _gradient(self, rows: Images, owners: targets.Owners) -> tuple[PerImage, Images]:
        rows = rows.detach().clone().requires_grad_()
        score = self.of_rows(rows, owners)
        (grad,) = torch.autograd.grad(score.sum() * self.engine.scale, rows, allow_unused=True)
        validate.dependent(grad)
        return score.detach(), grad.detach() / self.engine.scale if self.engine.scale != 1 else grad.detach()

    def _again(self, rows: Images, owners: targets.Owners, along: Images | None) -> tuple[PerImage, Images]:
        """The same once more differentiable, or already differentiated: on the model itself, or by differences."""
        engine = self.engine
        plainly = replace(self, graph=engine.apart is None, weights=self.weights and self.graph)

        def run(at: Images, keep: bool) -> tuple[PerImage, Images]:
            with torch.inference_mode(False), torch.enable_grad(), numerics(engine.precision, at.is_cuda):
                at = at if at.requires_grad else at.detach().clone().requires_grad_()
                score = plainly.of_rows(at, owners)
                (grad,) = torch.autograd.grad(score.sum(), at, allow_unused=True, create_graph=keep)
                validate.dependent(grad)
                return score, grad

        def fast(at: Images, keep: bool) -> tuple[PerImage, Images]:
            value, grad = plainly._once(at, owners)
            if engine.overflowed():
                value, grad = plainly._once(at, owners)
            return (value.clone(), grad.clone()) if engine.compiled else (value, grad)  # a replay writes over the last

        way = run if engine.apart is None else fast
        if along is not None:
            value, _, found = again.product(engine, way, rows, along)
        else:  # differences follow the rows alone
            beside = again.weights(engine.forward) if self.follows_weights else []
            value, found = run(rows, True) if beside is None else again.value_and_grad(engine, way, rows, beside)
        self.unseen = plainly.unseen
        return value, found

    def of_rows(self, rows: Images, owners: targets.Owners) -> PerImage:
        """The score of each row, in one call and with the graph that autograd makes of it."""
        with sdpa_kernel(SDPBackend.MATH) if self.graph else nullcontext():  # no other has a second derivative
            output = self.told(self._runner(), rows, owners)
        if self.unseen:
            validate.target_fits(self.target, tuple(output.shape), self.kind)
        score = targets.select(KINDS[self.kind](output.to(rows.dtype)), targets.take(self.target, owners))
        if self.unseen:
            validate.finite_score(score.detach())
            self.unseen = False
        validate.differentiable(score)
        return score

    def _runner(self) -> Callable[..., Any]:
        if not self.graph:
            return self.engine
        return self.engine.original if self.follows_weights else self.engine.twice

    @property
    def follows_weights(self) -> bool:
        """Whether a graph must lead to the model's own weights, or to what a function holds."""
        return self.weights and self.engine.apart is None and again.weights(self.engine.forward) != []

    def told(self, run: Callable[..., Any], rows: Images, owners: targets.Owners) -> Tensor:
        return validate.output(run(self.unpack(rows), self._arguments(owners)), len(rows))

    def _look(self, x: Images) -> int:
        return min(self.engine.rows, LOOK.get(x.device.type, 4))

    def _arguments(self, owners: targets.Owners) -> list[Any]:
        return [targets.row_of(argument, owners, self.images) for argument in self.arguments]

    def everyone(self, x: Images) -> targets.Owners:
        """Whose rows x holds."""
        return torch.arange(len(x), device=x.device) if self.of is None else self.of


def padded_to(x: Images, owners: targets.Owners, size: int) -> tuple[Tensor, Tensor]:
    """The rows repeated up to `size`: real rows, so that padding can neither overflow nor be NaN."""
    if len(x) >= size:
        return x, owners
    again = torch.arange(size, device=x.device) % len(x)
    return x[again], owners[again]
