"""`moreaugrad train-mask`: a mask network for a classifier, from images to a file.

Order, augmentation, classes and noise come from one generator on the device; labels are the classifier's own answers.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.data.arrays import digest, read_cifar10
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import find_images
from moreaugrad.methods.mask_network.decoder import MaskNet
from moreaugrad.methods.mask_network.encoder import Encoder, Fingerprint
from moreaugrad.methods.mask_network.objective import LOSSES, Phi
from moreaugrad.model.devices import best_device
from moreaugrad.model.surgery import freeze
from moreaugrad.models import load_model
from moreaugrad.models.classifier import Classifier
from moreaugrad.threads import initial_weights
from moreaugrad.training.augment import Pixels, crop_and_flip, normalise
from moreaugrad.training.trainer import Reporter, Trainer, TrainingJob, train_to_file, write_weights
from moreaugrad.types import Watch, ignore_progress

Inputs = Float[Tensor, "n c h w"]

PHASES = ("selector", "decoder")
SMALL = 64  # pixels up to which the loss of the paper, tuned for such images, is the default
HELD_OUT = 10  # every tenth image of a folder is not trained on
EVALUATED = 1000  # held-out images, at the most


@dataclass(frozen=True)
class MaskRecipe:
    """Adam in two phases: first the class selector, then, with it fixed, the decoder. Half a cosine down in each."""

    loss: str = "paper"  # or code
    steps_selector: int = 2000
    steps_decoder: int = 3000
    batch: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-4
    fake_selector: float = 0.5  # share of images asked for a class that they do not show
    fake_decoder: float = 0.3
    width: int = 32  # channels of the decoder at its finest resolution
    seed: int = 0
    log_every: int = 50  # steps per line of the log; a checkpoint lies between two lines

    def __post_init__(self) -> None:
        validate.one_of("loss", self.loss, LOSSES)
        for name in ("steps_selector", "steps_decoder", "batch", "width", "log_every"):
            validate.at_least(name, getattr(self, name), 1)
        validate.positive("lr", self.lr)
        validate.at_least("seed", self.seed, 0)


def train_mask_network(
    options: dict[str, Any], job: TrainingJob, model: str, weights: str | None, reporter: Reporter
) -> int:
    """Train or resume; the exit code. Options that are None are chosen by the image size."""

    def make() -> MaskTrainer:
        classifier = load_model(model, weights, device=device)
        small = max(classifier.size) <= SMALL
        defaults: dict[str, Any] = {"loss": "paper", "batch": 256} if small else {"loss": "code", "batch": 64}
        recipe = MaskRecipe(**defaults | {name: value for name, value in options.items() if value is not None})
        with reporter.busy(f"reading {job.data}"):
            images = read_training_images(job.data, classifier)
        train, held_out = (torch.from_numpy(each).to(device) for each in images)
        return MaskTrainer(recipe, classifier, train, held_out, (classifier.mean, classifier.std))

    def write(trainer: MaskTrainer, path: Path) -> str:
        scores = trainer.evaluate()
        notes = {name: value for name, value in trainer.identity.items() if name != "classifier"} | {"model": model}
        notes |= {f"held_out_{name}": value for name, value in scores.items()} | trainer.network.notes()
        write_weights(path, trainer.network.tensors(), notes)
        return f"held out: {json.dumps(scores)}"

    device = best_device(job.device)
    return train_to_file(make, write, job, "mask", reporter)


def read_training_images(data: Path, model: Classifier) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images to train on and images held out, as the classifier sees them: 8 bits, channels last."""
    if data.suffix == ".npz" or (data / "cifar-10-batches-py").is_dir():
        arrays = read_cifar10(data)
        if model.size != arrays.x_train.shape[1:3]:
            raise ValueError(
                f"the arrays of --data must have the size that the model sees, {model.size}, got "
                f"{arrays.x_train.shape[1:3]}; give a folder of images, which are cropped to it"
            )
        return arrays.x_train, arrays.x_test
    files = find_images([data])
    images = np.empty((len(files), *model.size, len(model.mean)), np.uint8)
    for place, path in enumerate(files):
        crop = model.crop(read_image(path))
        images[place] = np.array(crop.convert("L") if len(model.mean) == 1 else crop).reshape(*model.size, -1)
    held_out = np.arange(len(images)) % HELD_OUT == HELD_OUT - 1
    if not held_out.any():
        raise ValueError(f"--data must hold at least {HELD_OUT} images, got {len(images)} in {str(data)!r}")
    return images[~held_out], images[held_out]


class MaskTrainer(Trainer):
    """A mask network in training: each line of the log is `log_every` steps of one phase."""

    network: MaskNet

    def __init__(
        self,
        recipe: MaskRecipe,
        model: nn.Module,
        train: Pixels,
        held_out: UInt8[Tensor, "m h w c"],
        scale: tuple[Any, Any],  # mean and standard deviation of each channel
    ) -> None:
        super().__init__(train.device, recipe.seed)
        self.recipe, self.x, self.held_out = recipe, train, held_out
        mean, std = (torch.as_tensor(part).float().flatten() for part in scale)
        self.scale = tuple(mean.tolist()), tuple(std.tolist())
        mean, std = (part.to(self.device).view(-1, 1, 1) for part in (mean, std))
        self.phi = Phi(-mean / std, (1 - mean) / std)
        self.loss = LOSSES[recipe.loss]()
        layout = torch.channels_last if self.on_gpu else torch.preserve_format
        self.model = freeze(model).to(self.device).to(memory_format=layout)
        self.network, self.encoder = initial_mask_network(recipe, self.model, normalise(train[:2], self.scale))
        self.network.to(self.device).to(memory_format=layout)
        self.identity = asdict(recipe) | {
            "data": digest(train.cpu().numpy(), held_out.cpu().numpy()),
            "device": self.device.type,
            "classifier": self.network.fingerprint.layout,
        }
        self.phase, self.done = PHASES[0], 0  # steps of this phase
        self.optimiser = self._make_optimiser()

    @property
    def finished(self) -> bool:
        return self.phase == PHASES[-1] and self.done >= self.recipe.steps_decoder

    @property
    def progress(self) -> str:
        return f"step {self.done} of the {self.phase}"

    def advance(self, watch: Watch = ignore_progress) -> dict[str, Any]:
        """Some steps of one phase."""
        began, recipe = time.perf_counter(), self.recipe
        if self.phase == "selector" and self.done >= recipe.steps_selector:
            self.phase, self.done = "decoder", 0
            self.optimiser = self._make_optimiser()
        selecting = self.phase == "selector"
        total = recipe.steps_selector if selecting else recipe.steps_decoder
        steps = min(recipe.log_every, total - self.done)
        sums: dict[str, Tensor] = {}
        self.network.train(not selecting)
        for _ in range(steps):
            self._set_rate(recipe.lr * (1 + math.cos(math.pi * (self.done / total))) / 2)
            for name, value in (self._select() if selecting else self._decode()).items():
                sums[name] = sums.get(name, 0) + value.detach()
            self.done += 1
            watch(self.done, total, {})
        line: dict[str, Any] = {"phase": self.phase, "step": self.done}
        line |= {name: round(float(value) / steps, 5) for name, value in sums.items()}
        return self._add_line(line, line["loss"], began, recipe.lr)

    def state(self) -> dict[str, Any]:
        own = {"sketch": self.network.fingerprint.sketch, "phase": self.phase, "done": self.done}
        return super().state() | own

    def load(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, with the same options and the same classifier."""
        own = self.network.fingerprint
        if not own.same(Fingerprint(own.layout, state["sketch"].cpu())):
            raise ValueError("the checkpoint must be of this classifier, got one of another; start over with --restart")
        self.phase, self.done = state["phase"], state["done"]
        self.optimiser = self._make_optimiser()
        super().load(state)

    def evaluate(self) -> dict[str, float]:
        """On held-out images: the mask's area, and the mean probability of the class kept and removed, by blur."""
        self.network.eval()
        sums = dict.fromkeys(("area", "probability", "kept", "removed", "area_of_other"), 0.0)
        images = self.held_out[:: -(-len(self.held_out) // EVALUATED)]
        with torch.no_grad():
            for pixels in images.split(self.recipe.batch):
                for name, value in self._evaluate_batch(normalise(pixels, self.scale)).items():
                    sums[name] += float(value.sum()) / len(images)
        return {name: round(value, 4) for name, value in sums.items()}

    def _evaluate_batch(self, x: Inputs) -> dict[str, Tensor]:
        logits, maps = self.encoder(lambda: self.model(x))
        label = logits.argmax(1)
        mask, other = (self.network(maps, each) for each in (label, (label + 1) % self.network.classes))
        large, rest = _resize(mask, x), self.phi.blur(x)
        inputs = {"probability": x, "kept": self.phi(x, large, rest), "removed": self.phi(x, 1 - large, rest)}
        found = {name: self.model(each).softmax(1).gather(1, label[:, None]) for name, each in inputs.items()}
        return found | {"area": mask.mean((1, 2, 3)), "area_of_other": other.mean((1, 2, 3))}

    def _select(self) -> dict[str, Tensor]:
        """Does this class occur? Cross-entropy of the selector alone."""
        _, label, maps = self._draw_batch()
        asked, fake = self._draw_classes(label, self.recipe.fake_selector)
        logit = self.network.exists(maps[-1].float(), asked)
        loss = F.binary_cross_entropy_with_logits(logit, (~fake).float())
        self._descend(loss)
        return {"loss": loss, "accuracy": ((logit > 0) == ~fake).float().mean()}

    def _decode(self) -> dict[str, Tensor]:
        x, label, maps = self._draw_batch()
        asked, fake = self._draw_classes(label, self.recipe.fake_decoder)
        with self._precision():
            mask = self.network(maps, asked)
        large = _resize(mask, x)
        noisy, rest = self.phi.noisy(x, self.generator), self.phi.rest(x, self.generator)
        both = torch.cat([self.phi(noisy, large, rest), self.phi(noisy, 1 - large, rest)])
        with self._precision():
            logits = validate.output(self.model(both), len(both)).float()
        kept, removed = logits.chunk(2)
        loss = self.loss(mask, kept, removed, label, fake).mean()
        self._descend(loss)
        found = {"area": mask.mean((1, 2, 3))}
        for name, each in (("kept", kept), ("removed", removed)):
            found[name] = each.detach().softmax(1).gather(1, label[:, None])[:, 0]
        real = ~fake  # images that were asked for a class of their own
        means = {name: (each.detach() * real).sum() / real.sum().clamp_min(1) for name, each in found.items()}
        return {"loss": loss, **means}

    def _draw_batch(self) -> tuple[Inputs, Int[Tensor, "n"], Any]:
        """Random images, what the classifier calls them, and its feature maps."""
        which = torch.randint(len(self.x), (self.recipe.batch,), generator=self.generator, device=self.device)
        x = normalise(crop_and_flip(self.x[which], self.generator, reach=self.x.shape[1] // 8), self.scale)
        with torch.no_grad(), self._precision():
            output, maps = self.encoder(lambda: self.model(x))
        return x, validate.output(output, len(x)).argmax(1), maps

    def _draw_classes(self, label: Int[Tensor, "n"], share: float) -> tuple[Tensor, Tensor]:
        """The classes to ask for: the true one, or, in `share` of the cases, any other."""
        classes = self.network.classes
        fake = torch.rand(len(label), generator=self.generator, device=self.device) < share
        other = torch.randint(1, max(2, classes), (len(label),), generator=self.generator, device=self.device)
        return torch.where(fake, (label + other) % classes, label), fake

    def _make_optimiser(self) -> torch.optim.Adam:
        """For the weights of this phase; the others are frozen."""
        first = next(self.network.selector.parameters())
        for each in self.network.parameters():
            each.requires_grad_((each is first) == (self.phase == "selector"))
        chosen = [each for each in self.network.parameters() if each.requires_grad]
        decay = self.recipe.weight_decay
        return torch.optim.Adam(chosen, self.recipe.lr, weight_decay=decay, fused=self.on_gpu or None)


def initial_mask_network(recipe: MaskRecipe, model: nn.Module, x: Inputs) -> tuple[MaskNet, Encoder]:
    """A network for this classifier with the initial weights of the recipe's seed, and what feeds it."""
    encoder = Encoder.of(model, x)
    with torch.no_grad():
        output, maps = encoder(lambda: model(x))
    channels, classes = [each.shape[1] for each in maps], validate.output(output, len(x)).shape[1]
    with initial_weights(recipe.seed):
        network = MaskNet(encoder.stages, channels, classes, Fingerprint.of(model), recipe.width)
    return network, encoder


def _resize(mask: Tensor, x: Inputs) -> Tensor:
    same = mask.shape[2:] == x.shape[2:]
    return mask if same else F.interpolate(mask, x.shape[2:], mode="bilinear", align_corners=False)
