"""A network made ready for many gradients: the one place that knows precision, layout and compilation.

Works on a frozen copy with batch norm folded where that changes nothing; a model that cannot be copied, cast or
compiled is run as it is. Never touches the caller's model, and never calls autograd.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad import limits, validate
from moreaugrad.model import surgery
from moreaugrad.registry import unknown
from moreaugrad.threads import ALONE, OwnHook
from moreaugrad.types import ForwardFunc

log = logging.getLogger("moreaugrad")

PRECISIONS = limits.PRECISIONS
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
# how far outputs may be from those of the model itself, relative to the largest: rounding, not another function
_NEAR = {"float32": 1e-3, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 1e-1}
PROBED = 4  # rows on which a changed copy is compared with the model


def choose_precision(precision: str | None, inputs: Sequence[Tensor]) -> str:
    """The precision in which to work: as given, else tf32 on a GPU that has it, where it costs next to nothing.

    Inputs that are not float32 keep the precision that they have.
    """
    x = inputs[0]
    single = all(each.dtype == torch.float32 for each in inputs)
    if precision is None:
        return "tf32" if single and has_tf32(x) else "float32"
    if precision not in PRECISIONS:
        raise unknown("precision", precision, list(PRECISIONS))
    if precision != "float32" and not single:
        raise ValueError(
            f"precision must be left out for inputs that are not float32, got precision={precision!r} for {x.dtype}; "
            "such inputs are explained in the precision they have"
        )
    if precision == "tf32" and not has_tf32(x):
        raise ValueError(f"precision='tf32' needs an NVIDIA GPU of 2020 or later, got {x.device}; use 'float32'")
    if precision == "bfloat16" and x.is_cuda and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError(f"precision='bfloat16' needs an NVIDIA GPU of 2020 or later, got {x.device}; use 'float16'")
    if precision == "float16" and not x.is_cuda:
        raise ValueError(f"precision='float16' needs a GPU, got {x.device}; use 'bfloat16' or 'float32'")
    return precision


def has_tf32(x: Tensor) -> bool:
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= (8, 0)


@contextmanager
def numerics(precision: str, on_gpu: bool) -> Iterator[None]:
    """GPU kernels that give the same answer twice, with TF32 or without.

    torch keeps these settings for the whole process, so threads take turns.
    """
    if not on_gpu:
        yield
        return
    with ALONE:
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
    """One way of running a network: in one precision, compiled or not, with exact Hessian products or differences.

    Threads share it by `for_call`: each call has an engine of its own, which tells the shared one what it learns.
    """

    forward: ForwardFunc
    precision: str = "float32"
    compile: bool = False
    hessian_step: float | None = None  # distance of the gradients of a Hessian product; None: exact products
    rows: int = 16  # most rows of one call; halved when the memory runs out
    channels_last: bool = True  # the layout in which convolutions are fast; given up where the model cannot take it
    body: Callable[..., Any] | None = field(default=None, init=False)  # what is run; None: the model itself
    cast: torch.dtype | None = field(default=None, init=False)  # the precision that the body takes
    auto: torch.dtype | None = field(default=None, init=False)  # the precision left to autocast
    compiled: bool = field(default=False, init=False)
    proven: bool = field(default=False, init=False)  # a compiled gradient has succeeded
    warm_up: float = field(default=0.0, init=False)  # seconds of the first gradient, compiling included
    made_of: Any = field(default=None, init=False)  # the model's fingerprint when it was prepared
    graphs: dict[Any, Any] = field(default_factory=dict, init=False)  # CUDA graphs, by shape
    tangents: bool = field(default=True, init=False)  # every operation of the network has a forward derivative
    spoiled: Tensor | None = field(default=None, init=False)  # on the device: whether a gradient was not finite
    shared: Engine | None = field(default=None, init=False)  # of the engine of a call: the one that it came from

    @property
    def scale(self) -> float:
        """Factor on gradients on their way back, so that those of float16 do not vanish."""
        return 1024.0 if self.precision == "float16" else 1.0

    def for_call(self, rows: int) -> Engine:
        """The engine of one call, with chunks of its own: another call must not change them in its midst."""
        own = copy.copy(self)
        own.shared, own.rows, own.spoiled = self, rows, None
        return own

    def learn(self, **facts: Any) -> None:
        """Notes what a run of the network has shown, for later calls too while the network is the same."""
        with ALONE:
            engines = [self] if self.shared is None or self.shared.made_of != self.made_of else [self, self.shared]
            for engine in engines:
                for name, value in facts.items():
                    setattr(engine, name, value)

    def __call__(self, inputs: Sequence[Tensor], arguments: Sequence[Any] = (), plain: bool = False) -> Any:
        """The outputs. `plain` runs the caller's own model, in its own precision."""
        body = self.forward if plain or self.body is None else self.body
        while True:
            rows = [_fast(x) if self.channels_last else x.contiguous() for x in inputs]
            try:
                if plain:
                    return body(*rows, *arguments)
                if self.cast is not None:
                    rows = [x.to(self.cast) for x in rows]
                if self.compiled and not arguments and self.auto is None and rows[0].is_cuda and rows[0].requires_grad:
                    return self._replay(body, rows)
                with nullcontext() if self.auto is None else torch.autocast(inputs[0].device.type, dtype=self.auto):
                    return body(*rows, *arguments)
            except RuntimeError as error:  # a view of an activation wants the plain layout
                validate.same_dtype(error, body, rows)
                if not self.channels_last or "view size is not compatible" not in str(error):
                    raise
                fixed = self.body
                if isinstance(fixed, nn.Module):
                    running = self.made_of is not None and not self.compiled  # maybe in another thread, which keeps it
                    fixed = (surgery.freeze(fixed) if running else fixed).to(memory_format=torch.contiguous_format)
                    body = fixed if body is self.body else body
                self.learn(channels_last=False, body=fixed)

    @property
    def runs_twice_differentiable(self) -> bool:
        """Whether what is run has second derivatives by the inputs: in full precision and not compiled."""
        return not self.compiled and self.cast is None and self.auto is None

    def _replay(self, body: Callable[..., Any], rows: list[Tensor]) -> Any:
        """One replay on the GPU instead of hundreds of launches, recorded once for each shape.

        Only what the compiler takes whole: it has checked that nothing but the inputs decides what is run.
        """
        shapes = tuple(x.shape for x in rows)
        if shapes not in self.graphs:
            whole = torch.compile(getattr(body, "_orig_mod", body), dynamic=False, fullgraph=True)

            def function(*x: Tensor) -> Any:  # a module itself would be written to
                return whole(*x)

            like = tuple(x.detach().clone().requires_grad_() for x in rows)
            try:
                self.graphs[shapes] = torch.cuda.make_graphed_callables(function, like)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                log.debug("the network cannot be recorded: %s", error)
                self.graphs[shapes] = body
        return self.graphs[shapes](*rows)

    def describe(self) -> dict[str, str | float | bool]:
        """How the network was run, for the record; the warm-up is the first gradient, compiling included."""
        found: dict[str, str | float | bool] = {"precision": self.precision, "compile": self.compiled}
        return found | {"warm_up": round(self.warm_up, 2)} if self.compiled else found

    def is_ready(self) -> bool:
        """Whether nothing is left to prepare: the model is what it was when that was done."""
        return self.made_of is not None and self.made_of == fingerprint(self.forward)

    def prepare(self, inputs: Sequence[Tensor], arguments: Sequence[Any] = ()) -> None:
        """Chooses what is run, by the outputs for these rows. Does nothing where the model has not changed."""
        with ALONE:  # threads that come for the first time together wait until it is ready
            if self.shared is None:
                return self._prepare(inputs, arguments)
            self.shared._prepare(inputs, arguments)
            for name in _PREPARED:
                setattr(self, name, getattr(self.shared, name))
            return None

    def _prepare(self, inputs: Sequence[Tensor], arguments: Sequence[Any]) -> None:
        now = fingerprint(self.forward)
        if self.made_of == now:
            return None
        self.made_of, self.compiled, self.proven = None, False, False
        self.body, self.cast, self.auto, self.graphs = None, None, None, {}
        with torch.inference_mode(False), torch.no_grad(), numerics(self.precision, inputs[0].is_cuda):
            fits = self._choose_body(inputs, arguments)
        if not fits:
            log.warning("%s changes what the model says; continuing in float32", self.precision)
            self._use_float32()
            return self._prepare(inputs, arguments)
        if self.compile:
            self.body, self.compiled = torch.compile(self.body or self.forward, dynamic=False), True
        self.made_of = now
        return None

    def _choose_body(self, inputs: Sequence[Tensor], arguments: Sequence[Any]) -> bool:
        """Takes the fastest way to run the model that computes the same; False where a half precision does not."""
        half, wanted = HALF.get(self.precision), None
        if isinstance(self.forward, nn.Module) and not _has_hooks(self.forward):
            try:
                body = self.forward
                if surgery.has_batch_norm(body):
                    folded, wanted = surgery.fold_batch_norms(body, lambda copy: self._outputs(copy, inputs, arguments))
                    body = folded if self._agrees(folded, inputs, arguments, wanted) else body
                body = surgery.make_fast_in_reverse(surgery.freeze(body) if body is self.forward else body)
                if self.channels_last and inputs[0].dtype != torch.float64:
                    surgery.make_channels_last(body)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever the model's own code raises when copied
                log.debug("the model cannot be copied: %s", error)
            else:
                self.body = body
        if half is None:
            return True
        wanted = self._outputs(self.forward, inputs, arguments) if wanted is None else wanted
        if self.body is not None:
            self.body, self.cast = self.body.to(half), half  # type: ignore[attr-defined]
            if self._agrees(self.body, inputs, arguments, wanted):
                return True
        self.body, self.cast, self.auto = None, None, half
        return self._agrees(self.forward, inputs, arguments, wanted)

    def _outputs(self, body: Callable[..., Any], inputs: Sequence[Tensor], arguments: Sequence[Any]) -> list[Tensor]:
        rows = [_fast(x) if self.channels_last else x.contiguous() for x in inputs]
        return output_tensors(body(*rows, *arguments))

    def _agrees(
        self, body: Callable[..., Any], inputs: Sequence[Tensor], arguments: Sequence[Any], wanted: list[Tensor]
    ) -> bool:
        before, self.body = self.body, body
        try:
            found = output_tensors(self(inputs, arguments))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.debug("one way to run the model failed: %s", error)
            return False
        finally:
            self.body = before
        same = len(found) == len(wanted) > 0 and all(a.shape == b.shape for a, b in zip(found, wanted, strict=True))
        return same and all(self._near(a, b) for a, b in zip(found, wanted, strict=True) if b.numel())

    def _near(self, found: Tensor, wanted: Tensor) -> bool:
        exact = wanted.dtype == torch.float64
        near = 1e-9 if exact else _NEAR["bfloat16" if wanted.dtype in HALF.values() else self.precision]
        return bool((found.to(wanted.dtype) - wanted).abs().max() <= near * wanted.abs().max())

    def halve_rows(self, size: int, error: torch.OutOfMemoryError) -> None:
        """Continues with fewer rows after `size` were too many."""
        if size <= 1:
            raise torch.OutOfMemoryError(
                "the memory must hold the gradient of one image, got no room for it; free memory on the device, "
                f"take smaller images or another device ({str(error).splitlines()[0]})"
            ) from error
        self.rows = size // 2
        log.warning("out of memory with %d rows at a time; continuing with %d", size, self.rows)

    def check_overflow(self, grad: Tensor) -> None:
        """Remembers a gradient that is not finite, without waiting for the device."""
        if self.precision in HALF:
            bad = ~torch.isfinite(grad).all()
            self.spoiled = bad if self.spoiled is None else self.spoiled | bad

    def overflowed(self) -> bool:
        """Whether a reduced precision was not enough since the last question; then float32 follows."""
        spoiled, self.spoiled = self.spoiled, None
        if spoiled is None or not bool(spoiled):
            return False
        log.warning("%s overflows in this model; continuing in float32", self.precision)
        self._use_float32()
        return True

    def _use_float32(self) -> None:
        self.learn(precision="float32", body=None, cast=None, auto=None, compiled=False, made_of=None)

    def stop_compiling(self, error: Exception) -> bool:
        """Whether the error may be the compiler's: then the network is run as it is from now on."""
        if not self.compiled or self.proven:
            return False
        reason = " ".join(str(error).split())[:200]
        log.warning("the model cannot be compiled (%s: %s); continuing without", type(error).__name__, reason)
        self.learn(body=getattr(self.body, "_orig_mod", None), compiled=False)
        return True


# what the engine of a call takes over from the shared one
_PREPARED = (
    *("precision", "body", "cast", "auto", "compiled", "proven", "warm_up", "made_of", "graphs", "tangents"),
    "channels_last",
)


@dataclass(eq=False)
class Prepared:
    """A network made ready once for many maps: methods, attacks and `certify` take it in place of the network.

    Made by `prepare`. A method that is given a plain network makes its own.

    Attributes:
        forward: the caller's network, which is never changed.
        precision: the precision to work in; None chooses by the device.
        compile: whether to compile; None compiles for many images on a GPU.

    Example:
        >>> ready = mg.prepare(net, x)
        >>> [name(ready).attribute(x, target=3).shape for name in (mg.SmoothGrad, mg.IntegratedGradients)]
        [torch.Size([2, 3, 16, 16]), torch.Size([2, 3, 16, 16])]
    """

    forward: ForwardFunc
    precision: str | None = None
    compile: bool | None = None
    _engines: dict[tuple[str, bool, float | None], Engine] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        validate.flag("compile", self.compile)
        if self.precision is not None:
            validate.one_of("precision", self.precision, dict.fromkeys(PRECISIONS))

    def engine(self, precision: str, compile: bool, hessian_step: float | None) -> Engine:
        """The engine for one way of running, made at its first use."""
        key = (precision, compile, hessian_step)
        return self._engines.setdefault(key, Engine(self.forward, *key))

    def forget(self) -> None:
        """Drop what was prepared; it is made again at the next use."""
        self._engines.clear()

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def __getstate__(self) -> dict[str, Any]:
        """What is stored or sent elsewhere: all but the engines, which are made again there."""
        return {"forward": self.forward, "precision": self.precision, "compile": self.compile, "_engines": {}}


MANY = 512  # images from which on compiling pays: it takes as long as some hundred thousand gradients


def prepare(
    model: ForwardFunc,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
    *,
    precision: str | None = None,
    compile: bool | None = None,
) -> Prepared:
    """Makes a network ready for many maps: a frozen copy, batch norm folded, cast and compiled as asked.

    Every method does this by itself for its own network. Prepare explicitly to share the work between methods, or to
    pay for it before the first map. The model is compared with its copy on the first inputs, and prepared again when
    its weights, layers or hooks change. Weights that are edited in place through `.data` are noticed only if their
    first, middle or last entry changes.

    Args:
        model: a module in evaluation mode, or any callable that returns scores of shape (N, classes).
        inputs: a few inputs, batch first, to prepare with at once; None waits for the first map.
        precision: "float32", "tf32", "bfloat16" or "float16"; None chooses by the device.
        compile: whether to compile; None compiles for many images on a GPU.

    Returns:
        The prepared network, to be given to methods in place of the model.

    Example:
        >>> ready = mg.prepare(net, x)
        >>> mg.SmoothGrad(ready, samples=8).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """
    model = model.forward if isinstance(model, Prepared) else model
    made = Prepared(model, precision, compile)
    if inputs is not None:
        given = tuple(each.detach()[:PROBED] for each in validate.inputs(inputs))
        validate.evaluating(model)
        made.engine(choose_precision(precision, given), bool(compile), None).prepare(given)
    return made


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def fingerprint(forward: ForwardFunc) -> Any:
    """Changes when the model's weights, layers, hooks or plain attributes do.

    Looks at versions and addresses, and at three entries of each tensor, because an edit through `.data` leaves no
    other trace; never at all weights.
    """
    if not isinstance(forward, nn.Module):
        return ()
    modules = list(forward.modules())
    own = [(*each._parameters.values(), *each._buffers.values()) for each in modules]
    tensors = [t for several in own for t in several if t is not None]
    weights = [(t.data_ptr(), -1 if t.is_inference() else t._version, t.dtype) for t in tensors]
    probes: dict[Any, list[Tensor]] = {}
    with torch.no_grad():
        for t in tensors:
            if t.is_floating_point() and t.numel() and not t.is_meta:
                flat, last = t.detach().view(-1) if t.is_contiguous() else t.detach().flatten(), t.numel() - 1
                probes.setdefault((t.device, t.dtype), []).append(flat[:: max(1, last // 2)][:3])
        values = [torch.cat(each).tolist() for each in probes.values()]
    layers = [
        (
            id(module),
            [(key, _plain(value)) for key, value in list(vars(module).items())],
            [list(_hooks(module, kind)) for kind in HOOKS],
        )
        for module in modules
    ]
    return weights, values, layers


def _plain(value: Any) -> Any:
    """What tells whether an attribute of a layer has changed; None for what a forward pass may leave there."""
    kind = type(value)  # first what most are: a network has thousands
    if kind in (dict, OrderedDict, type(None)):
        return None
    if kind in (bool, int, float, str) or isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple) and all(isinstance(each, int | float | str | None) for each in value):
        return value  # such as a stride
    return id(value) if callable(value) else None


def output_tensors(found: Any) -> list[Tensor]:
    """What two runs of a network are compared by: every tensor of real numbers in what it returns."""
    if isinstance(found, Tensor):
        return [found] if found.is_floating_point() else []
    parts = vars(found) if hasattr(found, "__dict__") and not isinstance(found, Mapping) else found
    parts = list(parts.values()) if isinstance(parts, Mapping) else parts
    return [each for part in parts for each in output_tensors(part)] if isinstance(parts, list | tuple) else []


def _fast(x: Tensor) -> Tensor:
    """The layout in which convolutions run up to five times faster; those of float64 would be slower."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 and x.dtype != torch.float64 else x


def _has_hooks(model: nn.Module) -> bool:
    """Hooks may write down what passes, or change it: such a model is run itself."""
    return any(_hooks(module, kind) for module in model.modules() for kind in HOOKS)


def _hooks(module: nn.Module, kind: str) -> dict[int, Any]:
    """The hooks of a module but for those that a call of ours has set for its own time, maybe in another thread."""
    found = list(vars(module).get(kind, {}).items())
    return {key: hook for key, hook in found if not isinstance(hook, OwnHook)}
