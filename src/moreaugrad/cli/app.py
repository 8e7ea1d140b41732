"""The command line: every command, and what becomes of errors. Imports nothing heavy by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from moreaugrad.cli import train
from moreaugrad.cli.attack import attack
from moreaugrad.cli.bulk import bulk
from moreaugrad.cli.certify import certify
from moreaugrad.cli.command import InterruptedCommandError, expand_options
from moreaugrad.cli.compare import compare, demo
from moreaugrad.cli.explain import explain
from moreaugrad.cli.report_job import report
from moreaugrad.cli.robustness import robustness
from moreaugrad.cli.serve import serve
from moreaugrad.cli.terminal import INTERRUPTED, Interruption, Terminal, ToldCode, keep_settings
from moreaugrad.methods import METHODS
from moreaugrad.models import MODELS
from moreaugrad.registry import Table

app = typer.Typer(
    help="Sparse and robust saliency maps: which pixels a classifier looks at.",
    epilog="Begin with `moreaugrad demo`, or `moreaugrad compare photo.jpg --quality fast`. Each command has a --help.",
    pretty_exceptions_enable=False,
)
EXAMPLES = {
    "explain": (
        "moreaugrad explain photos/ --sparsity 0.05 --out maps",
        "moreaugrad explain cat.png --top 3 --method group_sparse_moreau --groups superpixels",
        "moreaugrad explain cat.png --model mypackage.nets:make --weights net.pt --size 64 --labels names.txt",
        "moreaugrad explain cat.png --target tabby --against 'tiger cat'",
    ),
    "compare": (
        "moreaugrad compare cat.png --quality fast",
        "moreaugrad compare cat.png --methods gradient,smoothgrad,sparse_moreau --model timm/resnet50",
    ),
    "demo": ("moreaugrad demo --out demo",),
    "serve": (
        "moreaugrad serve",
        "moreaugrad serve --model package.module:factory --labels names.txt --examples photos/",
        "moreaugrad serve --host 0.0.0.0 --read-only --examples photos/",
    ),
    "attack": (
        "moreaugrad attack cat.png --method smoothgrad --epsilon 3",
        "moreaugrad attack cat.png --steps 3 --derivative frozen --quality fast",
    ),
    "robustness": (
        "moreaugrad robustness photos/ --methods gradient,smoothgrad,sparse_moreau --norms 1,3,10",
        "moreaugrad robustness photos/ --images 20 --minutes 30",
    ),
    "certify": (
        "moreaugrad certify cat.png --model lipschitz_cifar10 --epsilon 0.005",
        "moreaugrad certify cat.png --epsilon 0.1 --method sparsified_smoothgrad",
    ),
    "bulk": (
        "moreaugrad bulk photos/ --sparsity 0.05 --quality fast --out maps",
        "moreaugrad bulk manifest.parquet --dry-run",
        "moreaugrad bulk 'shards/*.tar' --engine ray --address auto --workers 8 --out maps",
        "moreaugrad bulk photos/ --shard 3/8 --out maps",
        "moreaugrad bulk --status maps",
    ),
    "report": (
        "moreaugrad report maps",
        "moreaugrad report maps --images 200 --source /mnt/photos",
    ),
    "methods": ("moreaugrad methods --json | jq keys",),
    "models": ("moreaugrad models --json | jq keys",),
    "train-mask": ("moreaugrad train-mask --data photos/ --model efficientnet_lite0 --out mask.safetensors",),
}
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, with flags.")]


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


def methods(*, as_json: AsJson = False) -> None:
    """List the methods."""
    _print_table(METHODS, as_json)


def models(*, as_json: AsJson = False) -> None:
    """List the models."""
    _print_table(MODELS, as_json)


def add_command(name: str, command: Callable[..., Any]) -> None:
    """A command with its options expanded and examples below its help."""
    examples = "\n\n".join(("Examples:", *EXAMPLES[name]))  # an empty line keeps lines apart
    app.command(name, epilog=examples)(expand_options(command))


for each in (explain, compare, demo, serve, bulk, report, attack, robustness, certify, methods, models):
    add_command(each.__name__, each)
app.add_typer(train.app, name="train")
add_command("train-mask", train.train_mask)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; every foreseeable failure is one line on stderr and exit code 2."""
    terminal = Terminal()
    try:
        with keep_settings(), Interruption():
            code = app(arguments, prog_name="moreaugrad", standalone_mode=False)
        if code == INTERRUPTED and not isinstance(code, ToldCode):  # before the command began: Typer says nothing
            terminal.error("interrupted")
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        code = 1
    except (KeyboardInterrupt, InterruptedCommandError):
        terminal.error("interrupted")
        code = INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError) as error:
        terminal.error(str(error) or type(error).__name__)
        code = 2
    except Exception as error:
        if not hasattr(error, "format_message"):  # wrong usage, whichever library parses it
            raise
        terminal.error(f"{error.format_message()} See --help.")
        code = 2
    sys.exit(code)


def _print_table(table: Table, as_json: bool) -> None:
    if as_json:
        known = {name: {"summary": entry.summary, "flags": sorted(entry.flags)} for name, entry in table.items()}
        typer.echo(json.dumps(known, indent=2))
        return
    width = max(map(len, table))
    for name, entry in table.items():
        typer.echo(f"{name:<{width}}  {entry.summary}")
