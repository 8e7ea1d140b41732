"""Named families (methods, priors, attacks, metrics, ...): one line per member, imported only when it is used.

Listing a table costs no torch import, so the command line answers at once. Members from outside the package join by
`register`, or by an entry point of the group "moreaugrad.plugins" that names a module which does so.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

Member = TypeVar("Member", bound=Callable[..., Any])
PLUGINS = "moreaugrad.plugins"
TABLES = {
    "prior": "moreaugrad.envelope.priors:PRIORS",
    "method": "moreaugrad.methods:METHODS",
    "attack": "moreaugrad.attacks:ATTACKS",
    "metric": "moreaugrad.metrics:METRICS",
    "model": "moreaugrad.models:MODELS",
    "statistic": "moreaugrad.model:STATISTICS",
}


class UnknownNameError(KeyError, ValueError):
    """A name that is in no table. A KeyError for mappings, a ValueError for users."""

    def __str__(self) -> str:
        return str(self.args[0])


def unknown(what: str, name: object, known: list[str]) -> UnknownNameError:
    """The error for a name that is not there, with the nearest one."""
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UnknownNameError(f"{what} must be one of {known}, got {name!r}.{hint}")


def load_object(path: str) -> Any:
    """What "package.module:name" names."""
    module, name = path.split(":")
    return getattr(import_module(module), name)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Looks for modules in a folder first, as `python -c` does in the current one."""
    here = str(folder)
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:  # the code may have removed it
            sys.path.remove(here)


@contextmanager
def catch_exit() -> Iterator[None]:
    """Code of others that ends the program, as a script does which is meant to be run, fails like any other."""
    try:
        yield
    except SystemExit as error:
        raise ImportError(f"it ended the program with exit code {error.code or 0}; guard it by __name__") from error


def call_named(name: str, folder: Path, made: type | None = None) -> Any:
    """What the function `package.module:factory` returns; what is no function, or an instance of `made`, as it is."""
    module, _, factory = name.partition(":")
    with importable(folder), catch_exit():
        found = attrgetter(factory)(import_module(module))
        ready = not callable(found) or (made is not None and isinstance(found, made))
        return found if ready else found()


@dataclass(frozen=True, slots=True)
class Entry:
    """One member: where its class lives, what it is in a line, and what it can do. Calling it makes the member."""

    path: str  # "package.module:Class"
    summary: str
    flags: frozenset[str] = frozenset()
    member: Any = None  # the class or function itself, where it was registered

    def load(self) -> Any:
        return load_object(self.path) if self.member is None else self.member

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.load()(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.load())

    def __getattribute__(self, name: str) -> Any:
        # editors and inspect.getdoc then show the member's own documentation
        return self.load().__doc__ if name == "__doc__" else object.__getattribute__(self, name)


class Table(Mapping[str, Entry]):
    """A mapping from name to Entry, whose errors name the members; `register` adds to it.

    Args:
        what: what a member is, for messages.
        **entries: the members of the package.

    Example:
        >>> mg.PRIORS["l1"]()
        L1()
    """

    _plugins_loaded = False

    def __init__(self, what: str, **entries: Entry) -> None:
        self.what = what
        self._entries = entries

    def __getitem__(self, name: str) -> Entry:
        try:
            if name not in self._entries:
                load_plugins()
            return self._entries[name]
        except (KeyError, TypeError):
            raise unknown(self.what, name, list(self._entries)) from None

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(self._entries)

    def __len__(self) -> int:
        load_plugins()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Table({self.what}: {', '.join(self)})"

    def make_entry(self, member: Any, summary: str, **about: Any) -> Entry:
        """The entry of a member from outside; `about` is what the table stores beside it."""
        return Entry(f"{member.__module__}:{member.__qualname__}", summary, frozenset(about.pop("flags", ())), member)

    def add(self, name: str, member: Any, **about: Any) -> None:
        """Adds a member under a name that is free."""
        taken = self._entries.get(name)
        again = taken is not None and taken.path == f"{member.__module__}:{member.__qualname__}"  # a cell run twice
        if taken is not None and not again:
            raise ValueError(
                f"the name of a {self.what} must be free, got {name!r}, which is {taken.path}; choose another name"
            )
        summary = (inspect.getdoc(member) or "").split("\n")[0]
        self._entries[name] = self.make_entry(member, summary, **about)


def register(kind: str, name: str, **about: Any) -> Callable[[Member], Member]:
    """Adds a member from outside the package to its table: a class or function decorator.

    The member is then known to Python and to the command line by its name. Put the call into a module that is named
    by `moreaugrad ... --import MODULE`, or by an entry point of the group "moreaugrad.plugins".

    Args:
        kind: "prior", "method", "attack", "metric", "model" or "statistic".
        name: the name in the table `PRIORS`, `METHODS`, `ATTACKS`, `METRICS`, `MODELS` or `STATISTICS`; must be free.
        **about: what the table stores beside it: `flags` of a method or attack; `needs`, `direction` and `range` of
            a metric.

    Returns:
        The decorator, which returns the member unchanged.

    Raises:
        TypeError: the member lacks what its kind must have.
        ValueError: the name is taken.

    Example:
        >>> @mg.register("prior", "ridge_example")
        ... class Ridge:
        ...     def value(self, delta):
        ...         return delta.square().flatten(1).sum(1) / 2
        ...     def prox(self, delta, amount):
        ...         return delta / (1 + amount.view(-1, 1, 1, 1))
        ...     def units(self, delta):
        ...         return delta.abs().flatten(1)
        >>> mg.MoreauGrad(net, prior="ridge_example", eta=0.1, budget=80).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """
    if kind not in TABLES:
        raise unknown("kind", kind, list(TABLES))
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"name must be a word of letters, digits and underscores, got {name!r}")

    def add(member: Member) -> Member:
        _check_member(kind, member)
        load_object(TABLES[kind]).add(name, member, **about)
        return member

    return add


def _check_member(kind: str, member: Any) -> None:
    """Refuses a member that breaks the protocol of its kind."""
    if kind in ("metric", "model", "statistic"):
        if not callable(member) or not hasattr(member, "__qualname__"):
            raise TypeError(f"a {kind} must be a function, got {member!r}")
        return
    if not isinstance(member, type):
        raise TypeError(f"a {kind} must be a class, got {member!r}")
    needed = {"prior": ("value", "prox", "units"), "method": ("compute",), "attack": ("perturb",)}[kind]
    base = {"method": "moreaugrad.methods.base:Method", "attack": "moreaugrad.attacks.base:Attack"}.get(kind)
    if base is not None and not issubclass(member, load_object(base)):
        raise TypeError(f"a {kind} must be a subclass of mg.{base.split(':')[1]}, got {member.__name__}; derive it")
    lacking = [name for name in needed if not callable(getattr(member, name, None))]
    if kind == "method" and getattr(member, "compute", None) is load_object(base or "").compute:
        lacking = ["compute"]
    if lacking:
        raise TypeError(
            f"a {kind} must define {', '.join(needed)}, got {member.__name__} without {', '.join(lacking)}; add what "
            "is missing"
        )


def load_plugins() -> None:
    """Imports the modules that installed packages name for this one, once."""
    if Table._plugins_loaded:
        return
    Table._plugins_loaded = True
    for each in entry_points(group=PLUGINS):
        try:
            each.load()
        except Exception as error:  # one broken plugin must not take the library with it
            warnings.warn(f"the plugin {each.name!r} ({each.value}) cannot be loaded: {error}", stacklevel=3)


def import_plugin(name: str) -> None:
    """Import a module by its name, looked for in the current folder too, or a .py file by its path; once."""
    try:
        _import(name)
    except Exception as error:
        raise ValueError(
            f"--import must name a module or a .py file that can be imported, got {name!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


@catch_exit()
def _import(name: str) -> None:
    if name.endswith(".py"):
        _import_file(str(Path(name).resolve()))
        return
    with importable(Path.cwd()):
        import_module(name)


def _import_file(path: str) -> None:
    """A file that some module was imported from already would register its members twice."""
    if any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
        return
    spec: Any = spec_from_file_location(path, path)
    sys.modules[path] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        raise
