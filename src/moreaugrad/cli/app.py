"""The command line. Holds options and their order of events; every import that costs time is made inside."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from moreaugrad.cli import train as cli_train
from moreaugrad.cli.attack import attack, robustness
from moreaugrad.cli.certify import certify
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.cli.train_mask import train_mask
from moreaugrad.methods import METHODS, QUALITY
from moreaugrad.models import MODELS

app = typer.Typer(
    add_completion=False,
    help="Sparse and robust saliency maps: which pixels a classifier looks at.",
    pretty_exceptions_enable=False,
)
app.add_typer(cli_train.app, name="train")
app.command("train-mask")(train_mask)
app.command()(attack)
app.command()(robustness)
app.command()(certify)

Images = Annotated[list[str], typer.Argument(help="Image files, folders or patterns.", show_default=False)]
Picture = Annotated[Path, typer.Argument(help="An image file.", show_default=False)]
ModelName = Annotated[str, typer.Option("--model", help="A name from `moreaugrad models`, or package.module:factory.")]
Weights = Annotated[str | None, typer.Option(help="A checkpoint file, or 'random'.")]
Labels = Annotated[Path | None, typer.Option(help="Class names: one per line, or JSON.")]
MethodName = Annotated[str, typer.Option("--method", help="A name from `moreaugrad methods`.")]
Names = Annotated[
    str, typer.Option("--methods", help="Names from `moreaugrad methods`, with commas; else all.", show_default=False)
]
Class = Annotated[str | None, typer.Option("--target", help="A class number or name; else the predicted class.")]
Rho = Annotated[float | None, typer.Option(help="Envelope radius, in squared units of the network's input.")]
Eta = Annotated[float | None, typer.Option(help="Weight of the prior.")]
Sparsity = Annotated[float | None, typer.Option(help="Share of the map to keep, e.g. 0.05; chooses eta.")]
Groups = Annotated[str | None, typer.Option(help="Cells per side, 'superpixels' or 'channels'.")]
NoiseLevel = Annotated[float | None, typer.Option(help="Noise relative to the image's range; 0 for none.")]
Samples = Annotated[int | None, typer.Option(help="Noise vectors per step.")]
Budget = Annotated[int | None, typer.Option(help="Gradients per image.")]
Quality = Annotated[str | None, typer.Option(help=f"Instead of --budget: {', '.join(QUALITY)}.")]
Error = Annotated[float | None, typer.Option("--relative-error", help="Stop once the map is known so well.")]
Precision = Annotated[str | None, typer.Option(help="float32, tf32, bfloat16 or float16; else by the device.")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="torch.compile; else for many images.")]
ScoreKind = Annotated[str | None, typer.Option("--score", help="logit, prob or logprob.")]
Layer = Annotated[str | None, typer.Option(help="Module path for methods that read a layer; with commas for several.")]
Mask = Annotated[Path | None, typer.Option("--mask-network", help="A file of `moreaugrad train-mask`.")]
Other = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other option of the method, e.g. rule=gausslegendre."),
]
Seed = Annotated[int | None, typer.Option(help="Of the noise.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON line per image, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no lines but errors.")]


def every(request: Request) -> list[str]:
    """The methods that need no training, and the trained one where its network is given."""
    trained = "network" in request.options
    return [name for name, each in METHODS.items() if trained or "trained" not in each.flags]


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


@app.command()
def explain(  # noqa: PLR0913, PLR0917
    images: Images,
    model: ModelName = "efficientnet_lite0",
    weights: Weights = None,
    labels: Labels = None,
    method: MethodName = "sparse_moreau",
    target: Class = None,
    rho: Rho = None,
    eta: Eta = None,
    sparsity: Sparsity = None,
    groups: Groups = None,
    noise_level: NoiseLevel = None,
    samples: Samples = None,
    budget: Budget = None,
    quality: Quality = None,
    score: ScoreKind = None,
    seed: Seed = None,
    layer: Layer = None,
    mask_network: Mask = None,
    others: Other = None,
    relative_error: Error = None,
    precision: Precision = None,
    compile: Compile = None,
    device: Device = "auto",
    out: Out = Path("maps"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Explain images: for each a picture, the raw map (.npz) and a JSON line in the folder OUT."""
    request = Request.of(locals())
    METHODS[method]  # a wrong name is told at once
    from moreaugrad.cli.jobs import explain_files

    return explain_files(images, method, request, Terminal(quiet, json))


@app.command()
def compare(  # noqa: PLR0913, PLR0917
    image: Picture,
    methods: Names = "",
    model: ModelName = "efficientnet_lite0",
    weights: Weights = None,
    labels: Labels = None,
    target: Class = None,
    rho: Rho = None,
    eta: Eta = None,
    sparsity: Sparsity = None,
    groups: Groups = None,
    noise_level: NoiseLevel = None,
    samples: Samples = None,
    budget: Budget = None,
    quality: Quality = None,
    score: ScoreKind = None,
    seed: Seed = None,
    layer: Layer = None,
    mask_network: Mask = None,
    others: Other = None,
    relative_error: Error = None,
    precision: Precision = None,
    compile: Compile = None,
    device: Device = "auto",
    out: Out = Path("maps"),
    quiet: Quiet = False,
) -> int:
    """Draw methods side by side, each on its own scale, as OUT/<image>_compare.png.

    An option goes to the methods that take it. Sparse methods keep 5 % where neither --eta nor --sparsity is given.
    """
    request = Request.of(locals())
    names = [name.strip() for name in methods.split(",")] if methods else every(request)
    for name in names:
        METHODS[name]
    from moreaugrad.cli.jobs import compare_methods

    return compare_methods(image, names, request, Terminal(quiet), every=not methods)


@app.command()
def methods(as_json: Annotated[bool, typer.Option("--json", help="As JSON, with flags.")] = False) -> None:
    """List the methods."""
    if as_json:
        known = {name: {"summary": each.summary, "flags": sorted(each.flags)} for name, each in METHODS.items()}
        typer.echo(json.dumps(known, indent=2))
    else:
        _listed({name: each.summary for name, each in METHODS.items()})


@app.command()
def models() -> None:
    """List the models."""
    _listed({name: each.summary for name, each in MODELS.items()})


@app.command()
def demo(out: Out = Path("demo"), quiet: Quiet = False) -> int:
    """Explain a built-in photo with four methods; takes less than a minute on two CPU cores."""
    from moreaugrad.cli.demo import run_demo

    return run_demo(out, Terminal(quiet))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command; every foreseeable failure is one line on stderr and exit code 2."""
    terminal = Terminal()
    try:
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


def _listed(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    for name, summary in rows.items():
        typer.echo(f"{name:<{width}}  {summary}")
