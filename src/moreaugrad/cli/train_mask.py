"""`moreaugrad train-mask`: the options of training a mask network. Every import that costs time is made inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.cli.terminal import Terminal

Data = Annotated[
    Path,
    typer.Option(
        help="A folder of images, all held in memory at the model's size, or CIFAR-10 as for `train cifar10`."
    ),
]
ModelName = Annotated[str, typer.Option("--model", help="The classifier: a name from `moreaugrad models`, ...")]
Weights = Annotated[str | None, typer.Option(help="The classifier's checkpoint file.")]
Out = Annotated[Path, typer.Option(help="File for the mask network; checkpoint and log lie beside it.")]
Selector = Annotated[int | None, typer.Option(help="Steps of the class selector; else 2000.")]
Decoder = Annotated[int | None, typer.Option(help="Steps of the decoder; else 3000.")]
Batch = Annotated[int | None, typer.Option(help="Images per step; else 256, or 64 above 64 pixels.")]
Rate = Annotated[float | None, typer.Option(help="Highest learning rate; else 0.001.")]
Loss = Annotated[str | None, typer.Option(help="paper or code; else paper up to 64 pixels, code above.")]
Width = Annotated[int | None, typer.Option(help="Channels of the decoder at its finest resolution; else 32.")]
Seed = Annotated[int, typer.Option(help="Of the first weights, the order and the noise.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Limit = Annotated[float | None, typer.Option(help="Stop at the line of the log by which so many seconds have passed.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew, whatever checkpoint there is.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no lines but errors.")]

RECIPE = ("steps_selector", "steps_decoder", "batch", "lr", "loss", "width", "seed")


def train_mask(  # noqa: PLR0913, PLR0917
    data: Data,
    model: ModelName,
    weights: Weights = None,
    out: Out = Path("mask.safetensors"),
    steps_selector: Selector = None,
    steps_decoder: Decoder = None,
    batch: Batch = None,
    lr: Rate = None,
    loss: Loss = None,
    width: Width = None,
    seed: Seed = 0,
    device: Device = "auto",
    limit_seconds: Limit = None,
    restart: Restart = False,
    quiet: Quiet = False,
) -> int:
    """Train a mask network for a classifier. The same command goes on where an earlier one stopped.

    Exit code 0: the network is written; 1: --limit-seconds came first, run it again.
    """
    given = locals()
    from moreaugrad.training.mask_networks import train_mask_network
    from moreaugrad.training.trainer import TrainingJob

    return train_mask_network(
        {name: given[name] for name in RECIPE},
        TrainingJob(data, out, device, None, restart, limit_seconds),
        model,
        weights,
        Terminal(quiet),
    )
