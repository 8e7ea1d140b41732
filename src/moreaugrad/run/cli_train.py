"""`moreaugrad train`: the options of training. Every import that costs time is made inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.run.terminal import Terminal

app = typer.Typer(help="Train the networks of the zoo.")

Data = Annotated[Path, typer.Option(help="torchvision's CIFAR-10 folder, or an .npz with x_train, y_train, ...")]
Out = Annotated[Path, typer.Option(help="File for the weights; checkpoint and log lie beside it.")]
Activation = Annotated[str, typer.Option(help="softplus or relu.")]
Beta = Annotated[float, typer.Option(help="Steepness of softplus.")]
Noise = Annotated[float, typer.Option(help="Gaussian noise added to the normalised input.")]
Epochs = Annotated[int, typer.Option(help="Passes over the training images.")]
Batch = Annotated[int | None, typer.Option(help="Images per step; else 512 on a GPU, 128 elsewhere.")]
Rate = Annotated[float | None, typer.Option(help="Highest learning rate; else 0.2 per 512 images of a batch.")]
Decay = Annotated[float, typer.Option(help="Weight decay.")]
Seed = Annotated[int, typer.Option(help="Of the first weights, the order and the augmentation.")]
Width = Annotated[int, typer.Option(help="Channels of the first stage; 64 is ResNet-18.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="torch.compile; else on a GPU.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew, whatever checkpoint there is.")]
Limit = Annotated[float | None, typer.Option(help="Stop after the epoch in which so many seconds have passed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no lines but errors.")]

RECIPE = ("activation", "beta", "noise_sigma", "epochs", "batch", "lr", "weight_decay", "seed", "width")


@app.callback(invoke_without_command=True)
def _top(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def cifar10(  # noqa: PLR0913, PLR0917
    data: Data,
    out: Out = Path("resnet18_cifar10.safetensors"),
    activation: Activation = "softplus",
    beta: Beta = 1.0,
    noise_sigma: Noise = 0.0,
    epochs: Epochs = 200,
    batch: Batch = None,
    lr: Rate = None,
    weight_decay: Decay = 5e-4,
    seed: Seed = 0,
    width: Width = 64,
    device: Device = "auto",
    compile: Compile = None,
    restart: Restart = False,
    limit_seconds: Limit = None,
    quiet: Quiet = False,
) -> int:
    """Train ResNet-18 on CIFAR-10. The same command goes on where an earlier one stopped.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    given = locals()
    from moreaugrad.run.training_files import Order, train_cifar10

    return train_cifar10(
        {name: given[name] for name in RECIPE},
        Order(data, out, device, compile, restart, limit_seconds),
        Terminal(quiet),
    )
