"""Commands from functions: groups of options, --import, and what a shell offers. Imports nothing heavy by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, get_type_hints

import typer

from moreaugrad.cli.terminal import INTERRUPTED, ToldCode
from moreaugrad.registry import import_plugin

Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module or .py file that registers methods, priors, ..."),
]


class InterruptedCommandError(Exception):
    """Ctrl-C or SIGTERM ended a command that has not said so itself."""


def option(help: str, *names: str, default: Any = None, shown: str | None = None, **how: Any) -> Any:
    """A field of a dataclass that `expand_options` turns into an option of the command line.

    Args:
        help: what it is.
        names: of the option, where they are not that of the field.
        default: its value where it is not typed; MISSING for an option that must be.
        shown: the default as --help tells it, where that is not the value itself.
        how: further arguments of `typer.Option`, such as `metavar`, `rich_help_panel` or `autocompletion`.
    """
    show: Any = True if shown is None else shown
    info = typer.Option(... if default is MISSING else default, *names, help=help, show_default=show, **how)
    return field(default=default, metadata={"info": info})


def complete(names: Callable[[], Iterable[str]], lists: bool = False) -> Callable[[str], list[str]]:
    """What a shell offers for an option: the names that begin with what was typed; `lists`: after each comma."""

    def offer(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if lists else ("", "", incomplete)
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return offer


def expand_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command for Typer: each parameter that is a dataclass becomes the options that are its fields.

    An option that two of them have is the first one's, and given to both.

    Adds --import, whose modules are imported before the command looks up any name.
    """
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}
    hints = get_type_hints(command, include_extras=True)
    options: list[Parameter] = []
    for name, one in signature(command).parameters.items():
        if name not in groups:
            options.append(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        own, there = get_type_hints(groups[name], include_extras=True), {each.name for each in options}
        for each in fields(groups[name]):
            if each.name in there:
                continue
            default = each.metadata.get("info", each.default)
            if "info" in each.metadata:
                default.rich_help_panel = default.rich_help_panel or _panel_of(groups[name], each.name)
            options.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=own[each.name]))
    takes_imports = "imports" in signature(command).parameters
    if not takes_imports:
        options.append(Parameter("imports", Parameter.KEYWORD_ONLY, default=None, annotation=Imports))

    @wraps(command)
    def run(imports: list[str] | None = None, **typed: Any) -> Any:
        for module in imports or ():
            import_plugin(module)
        typed |= {"imports": imports} if takes_imports else {}
        bundles = {
            name: kind(**{each.name: typed[each.name] for each in fields(kind)}) for name, kind in groups.items()
        }
        bundled = {each.name for kind in groups.values() for each in fields(kind)}
        try:
            code = command(**{name: value for name, value in typed.items() if name not in bundled}, **bundles)
            return ToldCode(code) if code == INTERRUPTED else code
        except KeyboardInterrupt as error:  # which Typer would end without a word
            raise InterruptedCommandError from error

    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    paragraphs = (command.__doc__ or "").split("\n\n")
    run.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)  # the terminal breaks lines
    return run


def _panel_of(kind: type, name: str) -> str | None:
    """The panel of the class that declares an option."""
    owner = next(each for each in kind.__mro__ if name in get_annotations(each))
    panel: str | None = getattr(owner, "panel", None)
    return panel


def parse_setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; a value that is JSON (a number, true, null, a list) is read as that, any other is a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--set must be NAME=VALUE, got {text!r}")
    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.strip().replace("-", "_"), value


def parse_numbers(name: str, text: str | None, kind: Callable[[str], Any]) -> list[Any] | None:
    """Numbers with commas; None where nothing was typed."""
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"--{name} must be {what} with commas, got {text!r}") from None
