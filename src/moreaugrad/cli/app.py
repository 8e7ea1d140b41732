"""The command line: every command, and what becomes of errors. Imports nothing heavy by itself."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from moreaugrad.cli import train
from moreaugrad.cli.attack import attack
from moreaugrad.cli.certify import certify
from moreaugrad.cli.compare import compare, demo
from moreaugrad.cli.explain import explain
from moreaugrad.cli.options import expand_options
from moreaugrad.cli.robustness import robustness
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS
from moreaugrad.models import MODELS
from moreaugrad.registry import Table

app = typer.Typer(
    add_completion=False,
    help="Sparse and robust saliency maps: which pixels a classifier looks at.",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        from moreaugrad import __version__

        typer.echo(f"moreaugrad {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def methods(*, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with flags.")] = False) -> None:
    """List the methods."""
    known = {name: {"summary": each.summary, "flags": sorted(each.flags)} for name, each in METHODS.items()}
    if as_json:
        typer.echo(json.dumps(known, indent=2))
    else:
        _print_table(METHODS)


def models() -> None:
    """List the models."""
    _print_table(MODELS)


for command in (explain, compare, methods, models, demo, attack, robustness, certify):
    app.command(command.__name__)(expand_options(command))
app.command("train-mask")(expand_options(train.train_mask))
app.add_typer(train.app, name="train")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; every foreseeable failure is one line on stderr and exit code 2."""
    terminal = Terminal()
    try:
        with warnings.catch_warnings():
            code = app(arguments, prog_name="moreaugrad", standalone_mode=False)
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        code = 1
    except KeyboardInterrupt:
        terminal.error("interrupted")
        code = 130
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError) as error:
        terminal.error(str(error) or type(error).__name__)
        code = 2
    except Exception as error:
        if not hasattr(error, "format_message"):  # wrong usage, whichever library parses it
            raise
        terminal.error(f"{error.format_message()} See --help.")
        code = 2
    sys.exit(code)


def _print_table(table: Table) -> None:
    width = max(map(len, table))
    for name, entry in table.items():
        typer.echo(f"{name:<{width}}  {entry.summary}")


if __name__ == "__main__":
    main()
