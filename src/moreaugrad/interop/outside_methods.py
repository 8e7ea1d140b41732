"""Maps made by code from outside, as methods: a copy of the model to work on, seeds, chunks, and checks of the map."""

from __future__ import annotations

import ast
import copy
import random as python_random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from inspect import Parameter
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.methods.base import Call, Method, option_fields
from moreaugrad.methods.cam.layers import enlarge
from moreaugrad.methods.chunks import run_in_chunks
from moreaugrad.model.prepared import numerics
from moreaugrad.registry import register
from moreaugrad.results import Explanation
from moreaugrad.threads import ALONE
from moreaugrad.types import Images

Rows = Int[Tensor, "r"]


@dataclass(frozen=True, eq=False)
class OutsideMethod(Method):
    """A method whose maps are made by other code, on a copy of the model: whatever that leaves behind goes with it."""

    maker: ClassVar[Any] = None  # the function or class from outside
    is_random: ClassVar[bool] = False
    make_class: ClassVar[Any] = None  # the public function that made this class
    own_options: ClassVar[tuple[str, ...]] = ()  # those that the code from outside takes
    needed: ClassVar[tuple[str, ...]] = ()  # options without a default

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision not in (None, "float32", "tf32") or self.compile:
            raise ValueError(
                f"precision must be 'float32' or 'tf32' and compile False for {self.get_name()}, which runs the "
                f"network in its own way, got precision={self.precision!r} and compile={self.compile!r}; leave them out"
            )
        validate.seed(getattr(self, "seed", 0))
        for each in option_fields(type(self)):
            object.__setattr__(self, each.name, _parse_option(getattr(self, each.name)))
        missing = [name for name in self.needed if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"{self.get_name()} needs {' and '.join(missing)}, got nothing; give it: {missing[0]}=..., or "
                f"--set {missing[0]}=... on the command line"
            )

    def __reduce__(self) -> Any:
        """Stored by what it was made of: the class itself has no name that could be imported."""
        values = {each.name: getattr(self, each.name) for each in option_fields(type(self))}
        own = {key: values.pop(key) for key in self.own_options}
        return _make_again, (type(self).make_class, type(self).maker, self.is_random, own, self.forward_func, values)

    @property
    def random(self) -> bool:
        return self.is_random

    @property
    def single(self) -> bool:
        """Whether images are taken one by one: random numbers drawn for one must not change those of the next."""
        return self.is_random

    def compute(self, call: Call) -> Explanation:
        network = self.make_network(call)

        def run(rows: Rows) -> tuple[Tensor, ...]:
            before = network.rows
            with torch.enable_grad(), numerics("float32", call.x.is_cuda), seeded(call.seed, call.x.device):
                found = self.make_maps(network, call, rows)
            maps = check_maps(found, call, rows, self.get_name())
            spent = torch.full((len(rows),), (network.rows - before) // len(rows), device=call.x.device)
            return maps, spent

        engine = call.score.engine
        maps, spent = run_in_chunks(engine, call.x, run, engine.rows if self.single else 1, call.watch)
        return Explanation(map=maps, gradients=spent)

    def make_network(self, call: Call) -> CountedNetwork:
        """What the code from outside may do with as it likes."""
        raise NotImplementedError

    def make_maps(self, network: CountedNetwork, call: Call, rows: Rows) -> Any:
        """The maps of some images, as the code from outside returns them."""
        raise NotImplementedError


class CountedNetwork:
    """A copy of a model, and how many rows have gone through it."""

    def __init__(self, forward: Any) -> None:
        self.rows = 0
        self.forward = copy_model(forward) if isinstance(forward, nn.Module) else self._count_calls(forward)
        if isinstance(self.forward, nn.Module):
            self.forward.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        first = next((each for each in (*given, *named.values()) if isinstance(each, Tensor)), None)
        self.rows += 0 if first is None else len(first)

    def _count_calls(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            self.rows += len(given[0])
            return forward(*given)

        return run


def make_class(
    base: type[Any], title: str, maker: Any, known: Mapping[str, Any], options: Mapping[str, Any], random: bool
) -> type[Any]:
    """A method class whose fields are the options `known`, with their defaults or those in `options`."""
    for key in options:
        if key not in known:
            raise validate.unknown_option(title, key, list(known))
    empty = [key for key, default in known.items() if default is Parameter.empty]
    defaults = {key: None if key in empty else value for key, value in known.items()} | dict(options)
    defaults |= {"seed": 0} if random else {}
    entries = [(key, Any, _field(_parse_option(value))) for key, value in defaults.items()]
    documented = (getattr(maker, "__doc__", None) or "").strip().split("\n")[0]
    made: Any = make_dataclass(title, entries, bases=(base,), frozen=True, eq=False)
    made.__module__, made.__doc__ = __name__, documented or f"Maps of {title}."
    made.maker, made.is_random = staticmethod(maker) if not isinstance(maker, type) else maker, random
    made.own_options, made.needed = tuple(known), tuple(empty)
    return made  # type: ignore[no-any-return]


def join_table(made: type[Any], name: str | None) -> type[Method]:
    """Registers a class under a name, where one is given."""
    if name is not None:
        register("method", name, flags={"outside"} | (set() if made.is_random else {"deterministic"}))(made)
    return made


def copy_model(model: nn.Module) -> nn.Module:
    """A copy with weights of its own and no operation in place, which backward hooks could not follow."""
    try:
        found: nn.Module = copy.deepcopy(getattr(model, "_orig_mod", model))
    except Exception as error:
        raise ValueError(
            "the model must be one that can be copied, so that nothing is left behind in it, got "
            f"{type(error).__name__}: {error}; wrap it in a function that returns its scores, if the method takes one"
        ) from error
    for module in found.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
    return found


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The same random numbers for every image, from all usual sources; their states are put back.

    Those of torch are forked by the method already: for the CPU and this device, so no other may be seeded.
    """
    with ALONE:  # all threads draw from these sources
        states = python_random.getstate(), np.random.get_state()  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        python_random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            python_random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def check_maps(found: Any, call: Call, rows: Rows, name: str) -> Images:
    """Maps of the images in the form that methods return; refuses what is none."""
    x = call.x[rows]
    if isinstance(found, tuple | list) and len(call.packing.shapes) > 1:
        return call.packing.pack(tuple(torch.as_tensor(part).detach().to(x.device) for part in found))
    if isinstance(found, tuple | list) and len(found) == 1:
        found = found[0]
    try:
        maps = torch.as_tensor(found).detach().to(x.device, x.dtype)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must return maps as a tensor or an array, got {type(found).__name__}") from None
    maps = maps.unsqueeze(1) if maps.ndim == x.ndim - 1 and x.ndim == 4 else maps
    coarse = x.ndim == 4 and maps.shape[2:] != x.shape[2:]
    flat = maps.ndim == x.ndim > 2 and maps.shape[1] in (1, x.shape[1]) and (coarse or maps.shape[2:] == x.shape[2:])
    if len(maps) != len(x) or not (maps.shape == x.shape or flat):
        raise ValueError(
            f"{name} must return one map per input, of the shape {tuple(x.shape)}, or of one channel, got "
            f"{tuple(maps.shape)}; reduce it in a function for mg.from_function"
        )
    return enlarge(maps, (int(x.shape[2]), int(x.shape[3]))) if coarse else maps


def _parse_option(value: Any) -> Any:
    """Options as Captum wants them: tuples for lists, also where they were typed or stored as text."""
    if isinstance(value, str) and value[:1] in ("(", "["):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    if isinstance(value, list | tuple):
        return tuple(map(_parse_option, value))
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def _field(default: Any) -> Any:
    if type(default).__hash__ is None:
        return field(default_factory=lambda: default, kw_only=True)
    return field(default=default, kw_only=True)


def _make_again(make: Any, maker: Any, random: bool, own: Any, forward: Any, values: Any) -> Any:
    """A stored method."""
    return make(maker, random=random, **own)(forward, **values)
