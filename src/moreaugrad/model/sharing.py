"""A network that is made ready once for many methods. Holds what it shares no longer than the block that asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from moreaugrad.model.prepared import Engine
from moreaugrad.types import ForwardFunc

Engines = dict[tuple[str, bool, float | None], Engine]  # by precision, whether compiled, and how far apart

_NONE: Mapping[int, tuple[ForwardFunc, Engines]] = MappingProxyType({})
_shared = ContextVar("shared_engines", default=_NONE)  # by identity; the network is held, so no other has its id


@contextmanager
def shared_engines(forward: ForwardFunc) -> Iterator[None]:
    """Methods first used inside run this network through the same engines: folding and compiling are paid once.

    A network that changes is made ready again, as ever. A block inside another for the same network shares with it.
    """
    found = _shared.get()
    token = _shared.set(found if id(forward) in found else {**found, id(forward): (forward, {})})
    try:
        yield
    finally:
        _shared.reset(token)


def engines_of(forward: ForwardFunc) -> Engines:
    """Where a method finds its engines and leaves them for the next call: its own, or another method's too."""
    return _shared.get().get(id(forward), (forward, {}))[1]
