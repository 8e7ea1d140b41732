"""The class score, plain and smoothed: the only place that runs a network and calls autograd on it.

Rows reach the model in chunks of one constant shape, padded, because a kernel chosen for another
shape rounds differently and the kinks of a network amplify that. Leaves nothing behind in the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import checks
from moreaugrad.contracts import ForwardFunc, Images, PerImage, Target
from moreaugrad.core import targets
from moreaugrad.core.noise import Smoothing, antithetic

log = logging.getLogger("moreaugrad")

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": lambda output: output,
    "prob": lambda output: output.softmax(1),
    "logprob": lambda output: output.log_softmax(1),
}


def safe_rows(x: Images, samples: int = 1) -> int:
    """A chunk that fits and runs well, from the device and the shape alone: never from the batch's length."""
    large = x[0].numel() / (3 * 224 * 224)
    if x.device.type != "cpu":
        return max(2, int((16 if samples == 1 else 64) / max(1.0, large)))
    if samples == 1:
        return max(2, int(4 / max(1.0, large)))
    # one image's samples at a time fill a CPU, and are then bit for bit the same in any company
    return min(samples, max(2, min(256, int(16 / large))))


@contextmanager
def differentiable(on_gpu: bool) -> Iterator[None]:
    """Gradients on, whatever the caller switched off, and GPU kernels that give the same answer twice."""
    with torch.inference_mode(False), torch.enable_grad():
        if not on_gpu:
            yield
            return
        cudnn = torch.backends.cudnn
        before = cudnn.deterministic, cudnn.benchmark
        cudnn.deterministic, cudnn.benchmark = True, False
        try:
            yield
        finally:
            cudnn.deterministic, cudnn.benchmark = before


@dataclass(eq=False)
class ClassScore:
    """f_c(x): one output of a network per image, as logit, probability or log-probability.

    Works in the dtype of x, float32 or float64; `unpack` makes of it what the model takes.
    """

    forward: ForwardFunc
    target: Target
    images: int  # how many images the targets and arguments speak of
    arguments: tuple[Any, ...] = ()
    kind: str = "logit"
    rows: int = 16  # most rows of one call; halves itself on out-of-memory
    unpack: Callable[[Tensor], tuple[Tensor, ...]] = field(default=lambda x: (x,))  # rows -> the model's inputs
    samples: int = 1
    random: bool = False
    channels_last: bool = True  # the layout in which convolutions are fast; given up where the model cannot take it

    def value_and_grad(self, x: Images, draw: int = 0) -> tuple[PerImage, Images]:
        return self.evaluate(x, torch.arange(len(x), device=x.device), self.rows)

    def evaluate(self, x: Images, owners: targets.Owners, chunk: int) -> tuple[PerImage, Images]:
        """Value and gradient of each row; row r belongs to image owners[r]."""
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        start = 0
        while start < len(x):
            size = min(chunk, self.rows)
            stop = min(start + size, len(x))
            try:
                value, grad = self._chunk(x[start:stop], owners[start:stop], size)
            except torch.OutOfMemoryError as error:
                self._halve(size, error)
                continue
            values[start:stop], grads[start:stop] = value, grad
            start = stop
        return values, grads

    def outputs(self, x: Images, targeted: bool = True) -> Tensor:
        """What the network says of each image, without a gradient."""
        everyone = torch.arange(len(x), device=x.device)
        found: list[Tensor] = []
        while sum(map(len, found)) < len(x):
            start, size = sum(map(len, found)), self.rows
            rows, owners = _pad(x[start : start + size], everyone[start : start + size], size)
            try:
                with torch.no_grad():
                    found.append(self._run(rows, owners, targeted)[: len(x) - start].detach())
            except torch.OutOfMemoryError as error:
                self._halve(size, error)
        return torch.cat(found)

    def _chunk(self, x: Images, owners: targets.Owners, size: int) -> tuple[PerImage, Images]:
        rows, padded = _pad(x, owners, size)
        with differentiable(x.is_cuda):
            rows = rows.detach().clone().requires_grad_()
            output = self._run(rows, padded)
            score = targets.select(KINDS[self.kind](output.to(x.dtype)), targets.take(self.target, padded))
            checks.differentiable(score)
            (grad,) = torch.autograd.grad(score.sum(), rows, allow_unused=True)
        checks.dependent(grad)
        return score.detach()[: len(x)], grad.detach()[: len(x)]

    def _run(self, rows: Images, owners: targets.Owners, targeted: bool = True) -> Tensor:
        arguments = [targets.row_of(argument, owners, self.images) for argument in self.arguments]
        try:
            found = self.forward(*self._inputs(rows), *arguments)
        except RuntimeError as error:  # a view of an activation wants the plain layout
            if not self.channels_last or "view size is not compatible" not in str(error):
                raise
            self.channels_last = False
            found = self.forward(*self._inputs(rows), *arguments)
        output = checks.output(found, len(rows))
        if targeted:
            checks.target_fits(self.target, tuple(output.shape), self.kind)
        return output

    def _inputs(self, rows: Tensor) -> list[Tensor]:
        return [_fast(x) if self.channels_last else x.contiguous() for x in self.unpack(rows)]

    def _halve(self, size: int, error: torch.OutOfMemoryError) -> None:
        if size <= 1:
            raise error
        self.rows = size // 2
        log.warning("out of memory with %d rows at a time; going on with %d", size, self.rows)


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

    def value_and_grad(self, x: Images, draw: int = 0) -> tuple[PerImage, Images]:
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        for some, value, grad in self._noisy(x, draw):
            values[some], grads[some] = value.mean(1), grad.mean(1)
        return values, grads

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Means over parts of the draw; antithetic partners stay together, or parts would not be independent."""
        size = -(-self.samples // (2 * most)) * 2
        splits = -(-self.samples // size)
        share = splits / self.samples  # a short last part counts as what it is, so that the mean is the draw's
        values, grads = x.new_empty(splits, len(x)), x.new_empty(splits, *x.shape)
        for some, value, grad in self._noisy(x, draw):
            for part, (v, g) in enumerate(zip(value.split(size, 1), grad.split(size, 1), strict=True)):
                values[part, some], grads[part, some] = v.sum(1) * share, g.sum(1) * share
        return values, grads

    def _noisy(self, x: Images, draw: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Per block of whole images: values and gradients of every noisy copy, (images, samples, ...)."""
        fixed = 0 if self.smoothing.fixed else draw
        noise = antithetic(tuple(x.shape[1:]), self.samples, self.seed, fixed, x)
        together = max(1, self.base.rows // self.samples)
        chunk = min(self.base.rows, together * self.samples)
        for start in range(0, len(x), together):
            some = slice(start, min(start + together, len(x)))
            copies = x[some, None] + self.sigma[some, None] * noise
            owners = torch.arange(len(x), device=x.device)[some].repeat_interleave(self.samples)
            value, grad = self.base.evaluate(copies.flatten(0, 1), owners, chunk)
            yield some, value.view(copies.shape[:2]), grad.view(copies.shape)


def _pad(x: Images, owners: targets.Owners, size: int) -> tuple[Tensor, Tensor]:
    """The rows repeated up to `size`: real rows, so that padding can neither overflow nor be NaN."""
    if len(x) >= size:
        return x, owners
    again = torch.arange(size, device=x.device) % len(x)
    return x[again], owners[again]


def _fast(x: Tensor) -> Tensor:
    """The layout in which convolutions run up to five times faster; the values are the same."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
