"""The class score, plain and smoothed: the only place that runs a network and calls autograd on it.

Rows reach the model in chunks of one constant shape, padded, because a kernel chosen for another
shape rounds differently and the kinks of a network amplify that. Leaves nothing behind in the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from moreaugrad import checks
from moreaugrad.contracts import Images, PerImage, Target
from moreaugrad.core import targets
from moreaugrad.core.engine import Engine, numerics
from moreaugrad.core.noise import Smoothing, antithetic

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
    large = max(1.0, x[0].numel() / PHOTO)
    if x.is_cuda:
        rows = 128 if compiled or samples > 1 else 16
        free, _ = torch.cuda.mem_get_info(x.device)
        free += torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
        while rows > 2 and rows * large * ROW > free / 2:
            rows //= 2
        return max(2, int(rows / large))
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
    graph: bool = False  # gradients that can be differentiated again, through the model itself

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

    def evaluate(self, x: Images, owners: targets.Owners, chunk: int) -> tuple[PerImage, Images]:
        """Value and gradient of each row; row r belongs to image owners[r]."""
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        start = 0
        while start < len(x):
            size = min(chunk, self.engine.rows)
            stop = min(start + size, len(x))
            try:
                value, grad = self._chunk(x[start:stop], owners[start:stop], size)
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
                checks.target_fits(self.target, tuple(output.shape), self.kind)
            found.append(output[: len(x) - start].detach())
        return torch.cat(found)

    def _chunk(self, x: Images, owners: targets.Owners, size: int) -> tuple[PerImage, Images]:
        rows, padded = padded_to(x, owners, size)
        engine, start = self.engine, perf_counter()
        with torch.inference_mode(False), torch.enable_grad(), numerics(engine.precision, x.is_cuda):
            try:
                score, grad = self._gradient(rows, padded)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if not engine.give_up(error):
                    raise
                score, grad = self._gradient(rows, padded)
        if engine.compiled and not engine.proven:
            engine.warm_up = perf_counter() - start
            log.info("compiled in %.1f s", engine.warm_up)
        engine.proven = True
        engine.note(grad)
        return score[: len(x)], grad[: len(x)]

    def _gradient(self, rows: Images, owners: targets.Owners) -> tuple[PerImage, Images]:
        if not (self.graph and rows.requires_grad):
            rows = rows.detach().clone().requires_grad_()
        score = self.of_rows(rows, owners)
        lift = 1.0 if self.graph else self.engine.scale
        (grad,) = torch.autograd.grad(score.sum() * lift, rows, allow_unused=True, create_graph=self.graph)
        checks.dependent(grad)
        if self.graph:
            return score, grad
        return score.detach(), grad.detach() / lift if lift != 1 else grad.detach()

    def of_rows(self, rows: Images, owners: targets.Owners) -> PerImage:
        """The score of each row, in one call and with the graph that autograd makes of it."""
        with sdpa_kernel(SDPBackend.MATH) if self.graph else nullcontext():  # no other has a second derivative
            output = self.told(self.engine.original if self.graph else self.engine, rows, owners)
        if self.unseen:
            checks.target_fits(self.target, tuple(output.shape), self.kind)
        score = targets.select(KINDS[self.kind](output.to(rows.dtype)), targets.take(self.target, owners))
        if self.unseen:
            checks.finite_score(score.detach())
            self.unseen = False
        checks.differentiable(score)
        return score

    def told(self, run: Callable[..., Any], rows: Images, owners: targets.Owners) -> Tensor:
        return checks.output(run(self.unpack(rows), self._arguments(owners)), len(rows))

    def _look(self, x: Images) -> int:
        return min(self.engine.rows, LOOK.get(x.device.type, 4))

    def _arguments(self, owners: targets.Owners) -> list[Any]:
        return [targets.row_of(argument, owners, self.images) for argument in self.arguments]

    def everyone(self, x: Images) -> targets.Owners:
        """Whose rows x holds."""
        return torch.arange(len(x), device=x.device) if self.of is None else self.of


@dataclass(eq=False)
class SmoothedScore:
    """E f_c(x + sigma z), estimated on `samples` antithetic noise vectors shared by all images."""

    base: ClassScore
    smoothing: Smoothing
    sigma: Tensor  # broadcasts over x
    seed: int

    @property
    def samples(self) -> int:
        return self.smoothing.samples

    @property
    def random(self) -> bool:
        return not self.smoothing.fixed

    def value_and_grad(self, x: Images, draw: int = 0, most: int | None = None) -> tuple[PerImage, Images]:
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        for some, value, grad in self.each(x, draw, most or self.samples):
            values[some], grads[some] = value.mean(1), grad.mean(1)
        return values, grads

    def take(self, which: targets.Owners) -> SmoothedScore:
        return replace(self, base=self.base.take(which), sigma=self.sigma[which])

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Means over parts of the draw; antithetic partners stay together, or parts would not be independent."""
        size = -(-self.samples // (2 * most)) * 2
        splits = -(-self.samples // size)
        share = splits / self.samples  # a short last part counts as what it is, so that the mean is the draw's
        values, grads = x.new_empty(splits, len(x)), x.new_empty(splits, *x.shape)
        for some, value, grad in self.each(x, draw, self.samples):
            for part, (v, g) in enumerate(zip(value.split(size, 1), grad.split(size, 1), strict=True)):
                values[part, some], grads[part, some] = v.sum(1) * share, g.sum(1) * share
        return values, grads

    def each(self, x: Images, draw: int, samples: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Per block of whole images: values and gradients of every noisy copy, (images, samples, ...)."""
        fixed = 0 if self.smoothing.fixed else draw
        noise = antithetic(tuple(x.shape[1:]), samples, self.seed, fixed, x)
        # as many images as a whole draw allows, so that few images fill a part of one too; a GPU is never half idle
        rows = self.base.engine.rows
        together = max(1, rows // self.samples, rows // 2 // samples if x.is_cuda else 0) if 2 * samples < rows else 1
        chunk = min(rows, together * samples)
        for start in range(0, len(x), together):
            some = slice(start, min(start + together, len(x)))
            copies = x[some, None] + self.sigma[some, None] * noise
            owners = self.base.everyone(x)[some].repeat_interleave(samples)
            value, grad = self.base.evaluate(copies.flatten(0, 1), owners, chunk)
            yield some, value.view(copies.shape[:2]), grad.view(copies.shape)


def padded_to(x: Images, owners: targets.Owners, size: int) -> tuple[Tensor, Tensor]:
    """The rows repeated up to `size`: real rows, so that padding can neither overflow nor be NaN."""
    if len(x) >= size:
        return x, owners
    again = torch.arange(size, device=x.device) % len(x)
    return x[again], owners[again]
