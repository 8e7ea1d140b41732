"""`train` and `train-mask`: the options of training. Heavy imports are made inside."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moreaugrad.cli.command import expand_options, option
from moreaugrad.cli.options import Device, Quiet, Seed, Weights
from moreaugrad.cli.terminal import Terminal

if TYPE_CHECKING:
    from moreaugrad.training.trainer import TrainingJob

app = typer.Typer(help="Train the networks of the zoo.")

WeightsFile = Annotated[Path | None, typer.Option(help="File for the weights; checkpoint and log lie beside it.")]
MaskFile = Annotated[Path, typer.Option(help="File for the mask network; checkpoint and log lie beside it.")]
CifarData = Annotated[Path, typer.Option(help="torchvision's CIFAR-10 folder, or an .npz with x_train, y_train, ...")]
TinyData = Annotated[Path, typer.Option(help="tiny-imagenet-200 as published, or the folder above it.")]
MaskData = Annotated[Path, typer.Option(help="Images, all held in memory at the model's size, or CIFAR-10's folder.")]
ModelName = Annotated[str, typer.Option(help="The classifier: a name from `moreaugrad models`, or your own.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile; slow to start; default: on a GPU.")
]


@dataclass(frozen=True)
class RunOptions:
    """Where to train, for how long, and from which point."""

    device: Device = "auto"
    restart: bool = option("Start over, even if there is a checkpoint.", "--restart", default=False)
    limit_seconds: float | None = option("Stop at the first log line after this many seconds.")
    quiet: Quiet = False

    def job(self, data: Path, out: Path | None, compile: bool | None = None) -> TrainingJob:
        from moreaugrad.training.trainer import TrainingJob

        return TrainingJob(data, out, self.device, compile, self.restart, self.limit_seconds)


@dataclass(frozen=True)
class CifarRecipe:
    """What to train on CIFAR-10; None is chosen by the network or the device."""

    network: str = option("resnet18, or lipschitz: with Lipschitz constant 1.", default="resnet18")
    activation: str | None = option("resnet18: softplus (default) or relu.")
    beta: float | None = option("resnet18: steepness of softplus, 1.")
    width: int | None = option("resnet18: channels of the first stage, 64.")
    widths: str | None = option("lipschitz: channels of the stages, e.g. 96 or 32,64.")
    depth: int | None = option("lipschitz: orthogonal maps per stage.")
    tau: float | None = option("lipschitz: roundness of the activation.")
    temperature: float | None = option("lipschitz: factor of the logits in the loss.")
    patch: int | None = option("lipschitz: side of the first patches in pixels: 2, 4 or 8.")
    noise_sigma: float = option(
        "Gaussian noise on the input; resnet18: normalised, lipschitz: pixels 0..1.", default=0.0
    )
    epochs: int = option("Passes over the training images.", default=200)
    batch: int | None = option("Images per step.", shown="512 on a GPU, else 128")
    lr: float | None = option("Highest learning rate.", shown="0.2 per 512 images of a batch, or 0.01 for lipschitz")
    weight_decay: float | None = option("resnet18: weight decay, 5e-4.")
    seed: Seed = 0


@dataclass(frozen=True)
class FineTuningRecipe:
    """How to fine-tune on Tiny-ImageNet; None is chosen by the device."""

    epochs: int = option("Passes over the training images.", default=15)
    batch: int | None = option("Images per step.", shown="256 on a GPU, else 64")
    lr: float | None = option("Highest learning rate.", shown="0.01 per 256 images of a batch")
    size: int = option("Side of the network's input in pixels; images are resized to it.", default=128)
    seed: Seed = 0


@dataclass(frozen=True)
class MaskRecipe:
    """How to train a mask network; None is chosen by the size of the images."""

    steps_selector: int | None = option("Steps of the class selector.", shown="2000")
    steps_decoder: int | None = option("Steps of the decoder.", shown="3000")
    batch: int | None = option("Images per step.", shown="256, or 64 above 64 pixels")
    lr: float | None = option("Highest learning rate.", shown="0.001")
    loss: str | None = option("paper or code.", shown="paper up to 64 pixels, code above")
    width: int | None = option("Channels of the decoder at its finest resolution.", shown="32")
    seed: Seed = 0


@app.callback(invoke_without_command=True)
def _top(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
@expand_options
def cifar10(
    *, data: CifarData, out: WeightsFile = None, recipe: CifarRecipe, compile: Compile = None, run: RunOptions
) -> int:
    """Train a network on CIFAR-10. The same command resumes a training that was stopped.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.classifiers import train_cifar10

    return train_cifar10(asdict(recipe), run.job(data, out, compile), Terminal(run.quiet))


@app.command("tiny-imagenet")
@expand_options
def tiny_imagenet(
    *, data: TinyData, out: WeightsFile = None, recipe: FineTuningRecipe, compile: Compile = False, run: RunOptions
) -> int:
    """Fine-tune EfficientNet-Lite0, from its ImageNet weights, on Tiny-ImageNet. Resumes a stopped training.

    Exit code 0: the weights are written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.classifiers import train_tiny_imagenet

    return train_tiny_imagenet(asdict(recipe), run.job(data, out, compile), Terminal(run.quiet))


def train_mask(
    *,
    data: MaskData,
    model: ModelName,
    weights: Weights = None,
    out: MaskFile = Path("mask.safetensors"),
    recipe: MaskRecipe,
    run: RunOptions,
) -> int:
    """Train a mask network for a classifier. The same command resumes a training that was stopped.

    Exit code 0: the network is written; 1: --limit-seconds came first, run it again.
    """
    from moreaugrad.training.mask_networks import train_mask_network

    return train_mask_network(asdict(recipe), run.job(data, out), model, weights, Terminal(run.quiet))
