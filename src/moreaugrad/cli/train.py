"""`moreaugrad train`: the options of training. Every import that costs time is made inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.cli.terminal import Terminal

app = typer.Typer(help="Train the networks of the zoo.")

Data = Annotated[Path, typer.Option(help="torchvision's CIFAR-10 folder, or an .npz with x_train, y_train, ...")]
Network = Annotated[str, typer.Option(help="resnet18, or lipschitz: of Lipschitz constant 1.")]
Out = Annotated[Path | None, typer.Option(help="File for the weights; checkpoint and log lie beside it.")]
Activation = Annotated[str | None, typer.Option(help="resnet18: softplus (default) or relu.")]
Beta = Annotated[float | None, typer.Option(help="resnet18: steepness of softplus, 1.")]
Width = Annotated[int | None, typer.Option(help="resnet18: channels of the first stage, 64.")]
Widths = Annotated[str | None, typer.Option(help="lipschitz: channels of the stages, such as 96 or 32,64.")]
Depth = Annotated[int | None, typer.Option(help="lipschitz: orthogonal maps per stage.")]
Tau = Annotated[float | None, typer.Option(help="lipschitz: roundness of the activation.")]
Patch = Annotated[int | None, typer.Option(help="lipschitz: pixels along the first patches: 2, 4 or 8.")]
Temperature = Annotated[float | None, typer.Option(help="lipschitz: factor of the logits in the loss.")]
Noise = Annotated[
    float, typer.Option(help="Gaussian noise on the input; resnet18: normalised, lipschitz: pixels 0..1.")
]
Epochs = Annotated[int, typer.Option(help="Passes over the training images.")]
Batch = Annotated[int | None, typer.Option(help="Images per step; else 512 on a GPU, 128 elsewhere.")]
Rate = Annotated[
    float | None, typer.Option(help="Highest learning rate; else 0.2 per 512 images of a batch, or 0.01 for lipschitz.")
]
Decay = Annotated[float | None, typer.Option(help="resnet18: weight decay, 5e-4.")]
Seed = Annotated[int, typer.Option(help="Of the first weights, the order and the augmentation.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="torch.compile; else on a GPU.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew, whatever checkpoint there is.")]
Limit = Annotated[float | None, typer.Option(help="Stop after the epoch in which so many seconds have passed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no lines but errors.")]

Folder = Annotated[Path, typer.Option("--data", help="tiny-imagenet-200 as published, or the folder above it.")]
Passes = Annotated[int, typer.Option("--epochs", help="Passes over the training images.")]
Images = Annotated[int | None, typer.Option("--batch", help="Images per step; else 256 on a GPU, 64 elsewhere.")]
FineRate = Annotated[
    float | None, typer.Option("--lr", help="Highest learning rate; else 0.01 per 256 images of a batch.")
]
FineCompile = Annotated[
    bool, typer.Option("--compile/--no-compile", help="torch.compile: it takes longer than 15 epochs of 20,000 images.")
]
Size = Annotated[int, typer.Option(help="Pixels along the network's input, to which images are resized.")]

RECIPE = ("network", "noise_sigma", "epochs", "batch", "lr", "seed")
RESNET18 = ("activation", "beta", "width", "weight_decay")
FINE_TUNING = ("epochs", "batch", "lr", "size", "seed")
LIPSCHITZ = ("widths", "depth", "tau", "temperature", "patch")


@app.callback(invoke_without_command=True)
def _top(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def cifar10(  # noqa: PLR0913, PLR0917
    data: Data,
    network: Network = "resnet18",
    out: Out = None,
    activation: Activation = None,
    beta: Beta = None,
    width: Width = None,
    widths: Widths = None,
    depth: Depth = None,
    tau: Tau = None,
    temperature: Temperature = None,
    patch: Patch = None,
    noise_sigma: Noise = 0.0,
    epochs: Epochs = 200,
    batch: Batch = None,
    lr: Rate = None,
    weight_decay: Decay = None,
    seed: Seed = 0,
    device: Device = "auto",
    compile: Compile = None,
    restart: Restart = False,
    limit_seconds: Limit = None,
    quiet: Quiet = False,
) -> int:
    """Train a network on CIFAR-10. The same command goes on where an earlier one stopped.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    given = locals()
    from moreaugrad.training.classifiers import train_cifar10
    from moreaugrad.training.trainer import TrainingJob

    return train_cifar10(
        {name: given[name] for name in (*RECIPE, *RESNET18, *LIPSCHITZ)},
        TrainingJob(data, out, device, compile, restart, limit_seconds),
        Terminal(quiet),
    )


@app.command("tiny-imagenet")
def tiny_imagenet(  # noqa: PLR0913, PLR0917
    data: Folder,
    out: Out = None,
    epochs: Passes = 15,
    batch: Images = None,
    lr: FineRate = None,
    size: Size = 128,
    seed: Seed = 0,
    device: Device = "auto",
    compile: FineCompile = False,
    restart: Restart = False,
    limit_seconds: Limit = None,
    quiet: Quiet = False,
) -> int:
    """Fine-tune EfficientNet-Lite0, from its ImageNet weights, on Tiny-ImageNet. Goes on where it stopped.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    given = locals()
    from moreaugrad.training.classifiers import train_tiny_imagenet
    from moreaugrad.training.trainer import TrainingJob

    return train_tiny_imagenet(
        {name: given[name] for name in FINE_TUNING},
        TrainingJob(data, out, device, compile, restart, limit_seconds),
        Terminal(quiet),
    )
