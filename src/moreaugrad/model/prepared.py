"""A network made ready for many gradients: the one place that knows precision, layout and compilation.

Works on a frozen copy with batch norm folded where that changes nothing; a model that cannot be copied,
cast or compiled is run as it is. Never touches the caller's model, and never calls autograd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.model import surgery
from moreaugrad.model.model_version import HOOKS, mark
from moreaugrad.types import ForwardFunc

log = logging.getLogger("moreaugrad")

HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PRECISIONS = ("float32", "tf32", *HALF)
# how far outputs may be from those of the model itself, relative to the largest: rounding, not another function
_NEAR = {"float32": 1e-3, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 1e-1}
MANY = 512  # images from which on compiling pays: it takes as long as some hundred thousand gradients


def settle(precision: str | None, inputs: Sequence[Tensor]) -> str:
    """The precision in which to work: as asked, else tf32 on a GPU that has it, for there it costs next to nothing.

    Inputs that are not float32 keep the precision that they have.
    """
    single = all(x.dtype == torch.float32 for x in inputs)
    if precision is None:
        return "tf32" if single and validate.has_tf32(inputs[0]) else "float32"
    validate.precision(precision, PRECISIONS, inputs[0], single)
    return precision


@contextmanager
def numerics(precision: str, on_gpu: bool) -> Iterator[None]:
    """GPU kernels that give the same answer twice, with TF32 or without."""
    if not on_gpu:
        yield
        return
    cudnn, matmul = torch.backends.cudnn, torch.get_float32_matmul_precision()
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32
    short = precision != "float32"
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, short
    torch.set_float32_matmul_precision("high" if short else "highest")
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = before
        torch.set_float32_matmul_precision(matmul)


@dataclass(eq=False)
class Engine:
    """Runs a network; `prepare` makes it ready, and ready again after its weights changed."""

    forward: ForwardFunc
    precision: str = "float32"
    compile: bool = False
    apart: float | None = None  # second derivatives by gradients so far apart; None: exact
    rows: int = 16  # most rows of one call; halved on out-of-memory
    channels_last: bool = True  # the layout in which convolutions are fast; given up where the model cannot take it
    body: Callable[..., Any] | None = field(default=None, init=False)  # what is run
    cast: torch.dtype | None = field(default=None, init=False)  # the precision that the body takes
    auto: torch.dtype | None = field(default=None, init=False)  # the precision left to autocast
    compiled: bool = field(default=False, init=False)
    proven: bool = field(default=False, init=False)  # a compiled gradient has been seen
    warm_up: float = field(default=0.0, init=False)  # seconds of the first gradient, compiling included
    mark: Any = field(default=None, init=False)
    records: dict[Any, Any] = field(default_factory=dict, init=False)  # what the GPU replays, by shape
    tangents: bool = field(default=True, init=False)  # every operation of the network has a forward derivative
    spoiled: Tensor | None = field(default=None, init=False)  # on the device: whether a gradient was not finite

    @property
    def scale(self) -> float:
        """By how much gradients are lifted on their way back, lest those of float16 vanish."""
        return 1024.0 if self.precision == "float16" else 1.0

    def __call__(self, inputs: Sequence[Tensor], arguments: Sequence[Any] = ()) -> Any:
        return self._run(self.forward if self.body is None else self.body, inputs, arguments)

    def _recorded(self, body: Callable[..., Any], rows: list[Tensor]) -> Any:
        """One replay on the GPU instead of hundreds of launches, recorded once for each shape.

        Only what the compiler takes whole: it has seen that nothing but the inputs decides what is run.
        """
        shapes = tuple(x.shape for x in rows)
        if shapes not in self.records:
            whole = torch.compile(getattr(body, "_orig_mod", body), dynamic=False, fullgraph=True)

            def function(*x: Tensor) -> Any:  # a module itself would be written to
                return whole(*x)

            like = tuple(x.detach().clone().requires_grad_() for x in rows)
            try:
                self.records[shapes] = torch.cuda.make_graphed_callables(function, like)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                log.debug("the network cannot be recorded: %s", error)
                self.records[shapes] = body
        return self.records[shapes](*rows)

    def told(self) -> dict[str, str | float | bool]:
        """How the network was run, for the record; the warm-up is the first gradient, compiling included."""
        found: dict[str, str | float | bool] = {"precision": self.precision, "compile": self.compiled}
        return found | {"warm_up": round(self.warm_up, 2)} if self.compiled else found

    def original(self, inputs: Sequence[Tensor], arguments: Sequence[Any] = ()) -> Any:
        """What the model itself says."""
        return self._run(self.forward, inputs, arguments, plain=True)

    def twice(self, inputs: Sequence[Tensor], arguments: Sequence[Any] = ()) -> Any:
        """For second derivatives by the inputs: the prepared network where it is in full precision and not compiled."""
        fit = self.body is not None and not self.compiled and self.cast is None and self.auto is None
        return self._run(self.body if fit and self.body else self.forward, inputs, arguments, plain=True)

    def ready(self) -> bool:
        """Whether nothing is left to prepare: the model is as it was when that was done."""
        return self.body is not None and mark(self.forward) == self.mark

    def prepare(self, inputs: Sequence[Tensor], arguments: Sequence[Any], wanted: Tensor) -> None:
        """Settles what is run, by the outputs that the model itself gives for these inputs."""
        seen = mark(self.forward)
        if self.body is not None and seen == self.mark:
            return None
        self.mark, self.compiled, self.proven = seen, False, False
        self.records.clear()
        with torch.no_grad(), numerics(self.precision, inputs[0].is_cuda):
            found = any(self._fits(way, inputs, arguments, wanted) for way in self._ways(inputs, arguments))
        if not found and self.precision in HALF:
            log.warning("%s changes what the model says; going on in float32", self.precision)
            self._back_to_float32()
            return self.prepare(inputs, arguments, wanted)
        if not found:
            self.body, self.cast, self.auto = self.forward, None, None
        if not inputs[0].is_cuda and any(x.ndim == 4 for x in inputs):
            self._try_layouts(inputs, arguments)
        if self.compile:
            assert self.body is not None
            self.body, self.compiled = torch.compile(self.body, dynamic=False), True
        return None

    def _try_layouts(self, inputs: Sequence[Tensor], arguments: Sequence[Any]) -> None:
        """Which layout a CPU runs faster, by the clock: the usual one unless the other wins by far every time, so
        that the choice, and with it the rounding, is the same from run to run."""
        usual = self._clock(inputs, arguments)
        if not self.channels_last or usual < 0.005:  # the model cannot take it, or is too small to tell
            return
        self.channels_last = False
        self.channels_last = self._clock(inputs, arguments) > usual / 2

    def _clock(self, inputs: Sequence[Tensor], arguments: Sequence[Any]) -> float:
        """Seconds of a forward pass: the best of three, for a busy machine only adds."""
        seconds = []
        for _ in range(3):
            start = perf_counter()
            with torch.no_grad():
                self(inputs, arguments)
            seconds.append(perf_counter() - start)
        return min(seconds)

    def halve(self, size: int, error: torch.OutOfMemoryError) -> None:
        """Goes on with fewer rows after `size` were too many."""
        if size <= 1:
            raise torch.OutOfMemoryError(
                "the memory must hold the gradient of one image, got no room for it; free memory on the device, "
                f"take smaller images or another device ({str(error).splitlines()[0]})"
            ) from error
        self.rows = size // 2
        log.warning("out of memory with %d rows at a time; going on with %d", size, self.rows)

    def note(self, grad: Tensor) -> None:
        """Remembers a gradient that is not finite, without waiting for the device."""
        if self.precision in HALF:
            bad = ~torch.isfinite(grad).all()
            self.spoiled = bad if self.spoiled is None else self.spoiled | bad

    def overflowed(self) -> bool:
        """Whether a reduced precision was not enough since the last question; then float32 follows."""
        spoiled, self.spoiled = self.spoiled, None
        if spoiled is None or not bool(spoiled):
            return False
        log.warning("%s overflows in this model; going on in float32", self.precision)
        self._back_to_float32()
        return True

    def _back_to_float32(self) -> None:
        self.precision, self.body, self.cast, self.auto, self.compiled = "float32", None, None, None, False

    def give_up(self, error: Exception) -> bool:
        """Whether the error may be the compiler's: then the network is run as it is from now on."""
        if not self.compiled or self.proven:
            return False
        reason = " ".join(str(error).split())[:200]
        log.warning("the model cannot be compiled (%s: %s); going on without", type(error).__name__, reason)
        self.body, self.compiled = getattr(self.body, "_orig_mod", self.forward), False
        return True

    def _ways(
        self, inputs: Sequence[Tensor], arguments: Sequence[Any]
    ) -> Iterator[tuple[Callable[..., Any], torch.dtype | None, torch.dtype | None]]:
        """What may be run, best first: body, precision of the body, precision of autocast."""
        half = HALF.get(self.precision)
        if isinstance(self.forward, nn.Module) and not _hooked(self.forward):
            try:
                body = surgery.folded(self.forward, lambda copy: self._run(copy, inputs, arguments, plain=True))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever the model's own code raises when copied
                log.debug("the model cannot be copied: %s", error)
            else:
                layout = torch.channels_last if self.channels_last else torch.preserve_format
                yield (body if half is None else body.to(half)).to(memory_format=layout), half, None
        if half is not None:
            yield self.forward, None, half

    def _fits(self, way: Any, inputs: Sequence[Tensor], arguments: Sequence[Any], wanted: Tensor) -> bool:
        self.body, self.cast, self.auto = way
        try:
            found = validate.output(self(inputs, arguments), len(wanted))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.debug("one way to run the model failed: %s", error)
            return False
        exact = wanted.dtype == torch.float64
        near = 1e-9 if exact else _NEAR["bfloat16" if wanted.dtype in HALF.values() else self.precision]
        return bool((found.to(wanted.dtype) - wanted).abs().max() <= near * wanted.abs().max())

    def _run(
        self, body: Callable[..., Any], inputs: Sequence[Tensor], arguments: Sequence[Any], plain: bool = False
    ) -> Any:
        try:
            return self._call(body, inputs, arguments, plain)
        except RuntimeError as error:  # a view of an activation wants the plain layout
            if not self.channels_last or "view size is not compatible" not in str(error):
                raise
            self.channels_last = False
            return self._call(body, inputs, arguments, plain)

    def _call(self, body: Callable[..., Any], inputs: Sequence[Tensor], arguments: Sequence[Any], plain: bool) -> Any:
        rows = [_fast(x) if self.channels_last else x.contiguous() for x in inputs]
        if plain:
            return body(*rows, *arguments)
        if self.cast is not None:
            rows = [x.to(self.cast) for x in rows]
        half = self.auto
        if self.compiled and not arguments and half is None and rows[0].is_cuda and rows[0].requires_grad:
            return self._recorded(body, rows)
        with nullcontext() if half is None else torch.autocast(inputs[0].device.type, dtype=half):
            return body(*rows, *arguments)


def _fast(x: Tensor) -> Tensor:
    """The layout in which convolutions run up to five times faster; the values are the same."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _hooked(model: nn.Module) -> bool:
    """Hooks may write down what they see, or change it: such a model is run itself."""
    return any(getattr(module, kind, None) for module in model.modules() for kind in HOOKS)
