"""`train` and `train-mask`: the options of training. Heavy imports are made inside."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.cli.options import Device, Quiet, Seed, Weights, expand_options
from moreaugrad.cli.terminal import Terminal

app = typer.Typer(help="Train the networks of the zoo.")

WeightsFile = Annotated[Path | None, typer.Option(help="File for the weights; checkpoint and log lie beside it.")]
CompileByDevice = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile; default: on a GPU.")
]
Compile = Annotated[
    bool,
    typer.Option("--compile/--no-compile", help="Use torch.compile; takes longer than 15 epochs of 20,000 images."),
]
CifarData = Annotated[Path, typer.Option(help="torchvision's CIFAR-10 folder, or an .npz with x_train, y_train, ...")]
TinyData = Annotated[Path, typer.Option(help="tiny-imagenet-200 as published, or the folder above it.")]
MaskData = Annotated[
    Path, typer.Option(help="A folder of images, all held in memory at the model's size, or CIFAR-10 as for `train`.")
]
ModelName = Annotated[str, typer.Option(help="The classifier: a name from `moreaugrad models`, or your own.")]
MaskFile = Annotated[Path, typer.Option(help="File for the mask network; checkpoint and log lie beside it.")]


@dataclass(frozen=True)
class RunOptions:
    """How long to train, and from where."""

    restart: Annotated[bool, typer.Option("--restart", help="Start over, even if there is a checkpoint.")] = False
    limit_seconds: Annotated[float | None, typer.Option(help="Stop at the first log line after this many seconds.")] = (
        None
    )


@dataclass(frozen=True)
class CifarRecipe:
    """What to train on CIFAR-10; None is chosen by the network or the device."""

    network: Annotated[str, typer.Option(help="resnet18, or lipschitz: with Lipschitz constant 1.")] = "resnet18"
    activation: Annotated[str | None, typer.Option(help="resnet18: softplus (default) or relu.")] = None
    beta: Annotated[float | None, typer.Option(help="resnet18: steepness of softplus, 1.")] = None
    width: Annotated[int | None, typer.Option(help="resnet18: channels of the first stage, 64.")] = None
    widths: Annotated[str | None, typer.Option(help="lipschitz: channels of the stages, e.g. 96 or 32,64.")] = None
    depth: Annotated[int | None, typer.Option(help="lipschitz: orthogonal maps per stage.")] = None
    tau: Annotated[float | None, typer.Option(help="lipschitz: roundness of the activation.")] = None
    temperature: Annotated[float | None, typer.Option(help="lipschitz: factor of the logits in the loss.")] = None
    patch: Annotated[int | None, typer.Option(help="lipschitz: side of the first patches in pixels: 2, 4 or 8.")] = None
    noise_sigma: Annotated[
        float, typer.Option(help="Gaussian noise on the input; resnet18: normalised, lipschitz: pixels 0..1.")
    ] = 0.0
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 200
    batch: Annotated[int | None, typer.Option(help="Images per step; default: 512 on a GPU, else 128.")] = None
    lr: Annotated[
        float | None,
        typer.Option(help="Highest learning rate; default: 0.2 per 512 images of a batch, or 0.01 for lipschitz."),
    ] = None
    weight_decay: Annotated[float | None, typer.Option(help="resnet18: weight decay, 5e-4.")] = None
    seed: Seed = 0


@dataclass(frozen=True)
class FineTuningRecipe:
    """How to fine-tune on Tiny-ImageNet; None is chosen by the device."""

    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 15
    batch: Annotated[int | None, typer.Option(help="Images per step; default: 256 on a GPU, else 64.")] = None
    lr: Annotated[
        float | None, typer.Option(help="Highest learning rate; default: 0.01 per 256 images of a batch.")
    ] = None
    size: Annotated[int, typer.Option(help="Side of the network's input in pixels; images are resized to it.")] = 128
    seed: Seed = 0


@dataclass(frozen=True)
class MaskRecipe:
    """How to train a mask network; None is chosen by the size of the images."""

    steps_selector: Annotated[int | None, typer.Option(help="Steps of the class selector; default: 2000.")] = None
    steps_decoder: Annotated[int | None, typer.Option(help="Steps of the decoder; default: 3000.")] = None
    batch: Annotated[int | None, typer.Option(help="Images per step; default: 256, or 64 above 64 pixels.")] = None
    lr: Annotated[float | None, typer.Option(help="Highest learning rate; default: 0.001.")] = None
    loss: Annotated[str | None, typer.Option(help="paper or code; default: paper up to 64 pixels, code above.")] = None
    width: Annotated[
        int | None, typer.Option(help="Channels of the decoder at its finest resolution; default: 32.")
    ] = None
    seed: Seed = 0


@app.callback(invoke_without_command=True)
def _top(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
@expand_options
def cifar10(
    *,
    data: CifarData,
    out: WeightsFile = None,
    recipe: CifarRecipe,
    device: Device = "auto",
    compile: CompileByDevice = None,
    run: RunOptions,
    quiet: Quiet = False,
) -> int:
    """Train a network on CIFAR-10. The same command resumes a training that was stopped.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.files import Order, train_cifar10

    order = Order(data, out, device, compile, run.restart, run.limit_seconds)
    return train_cifar10(asdict(recipe), order, Terminal(quiet))


@app.command("tiny-imagenet")
@expand_options
def tiny_imagenet(
    *,
    data: TinyData,
    out: WeightsFile = None,
    recipe: FineTuningRecipe,
    device: Device = "auto",
    compile: Compile = False,
    run: RunOptions,
    quiet: Quiet = False,
) -> int:
    """Fine-tune EfficientNet-Lite0, from its ImageNet weights, on Tiny-ImageNet. Resumes a stopped training.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.files import Order, train_tiny_imagenet

    order = Order(data, out, device, compile, run.restart, run.limit_seconds)
    return train_tiny_imagenet(asdict(recipe), order, Terminal(quiet))


def train_mask(
    *,
    data: MaskData,
    model: ModelName,
    weights: Weights = None,
    out: MaskFile = Path("mask.safetensors"),
    recipe: MaskRecipe,
    device: Device = "auto",
    run: RunOptions,
    quiet: Quiet = False,
) -> int:
    """Train a mask network for a classifier. The same command resumes a training that was stopped.

    Exit code 0: the network is written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.mask_network import Order, train_mask_network

    order = Order(data, model, out, weights, device, run.restart, run.limit_seconds)
    return train_mask_network(asdict(recipe), order, Terminal(quiet))
