"""Training of a mask network: its two phases and their loop. Reads no data and writes no file.

Order, augmentation, classes and noise come from one generator on the device; labels are the classifier's own answers.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.methods.mask_network.blend import Phi
from moreaugrad.methods.mask_network.decoder import MaskNet
from moreaugrad.methods.mask_network.encoder import Encoder
from moreaugrad.methods.mask_network.fingerprint import Fingerprint
from moreaugrad.methods.mask_network.loss import LOSSES
from moreaugrad.model.surgery import frozen
from moreaugrad.training.augment import crop_and_flip
from moreaugrad.training.mask_recipe import PHASES, Recipe
from moreaugrad.types import Watch, unwatched

Pixels = UInt8[Tensor, "n h w c"]
Pictures = Float[Tensor, "n c h w"]

JUDGED = 1000  # held-out images, at the most


class MaskTraining:
    """A mask network on its way. `state` is everything that changes from step to step."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, train: Pixels, held_out: UInt8[Tensor, "m h w c"], view: tuple[Any, Any]
    ) -> None:
        device = train.device
        self.recipe, self.device, self.on_gpu = recipe, device, device.type == "cuda"
        self.x, self.held_out = train, held_out
        self.mean, self.std = (torch.as_tensor(part).to(device).float().flatten().view(-1, 1, 1) for part in view)
        self.phi = Phi(-self.mean / self.std, (1 - self.mean) / self.std)
        self.loss = LOSSES[recipe.loss]()
        layout = torch.channels_last if self.on_gpu else torch.preserve_format
        self.model = frozen(model).to(device).to(memory_format=layout)
        self.network, self.encoder = fresh(recipe, self.model, self._input(train[:2]))
        self.network.to(device).to(memory_format=layout)
        self.identity = asdict(recipe) | {
            "data": digest(train, held_out),
            "device": device.type,
            "classifier": self.network.fingerprint.layout,
        }
        self.generator = torch.Generator(device).manual_seed(recipe.seed)
        self.history: list[dict[str, Any]] = []
        self.phase, self.done = PHASES[0], 0  # steps of this phase
        self.optimiser = self._optimiser()

    @property
    def finished(self) -> bool:
        return self.phase == PHASES[-1] and self.done >= self.recipe.steps_decoder

    @property
    def reached(self) -> str:
        return f"step {self.done} of the {self.phase}"

    def told(self, line: dict[str, Any]) -> str:
        return json.dumps(line)

    def advance(self, watch: Watch = unwatched) -> dict[str, Any]:
        """Some steps of one phase; the line of the log."""
        began, total = time.perf_counter(), self.recipe.steps(self.phase)
        if self.done >= total:
            self.phase, self.done = PHASES[1], 0
            self.optimiser, total = self._optimiser(), self.recipe.steps_decoder
        steps = min(self.recipe.log_every, total - self.done)
        sums: dict[str, Tensor] = {}
        self.network.train(self.phase == "decoder")
        for _ in range(steps):
            self._set_rate(self.done / total)
            for name, value in (self._select() if self.phase == "selector" else self._decode()).items():
                sums[name] = sums.get(name, 0) + value.detach()
            self.done += 1
            watch(self.done, total, {})
        line: dict[str, Any] = {"phase": self.phase, "step": self.done}
        line |= {name: round(float(value) / steps, 5) for name, value in sums.items()}
        if not math.isfinite(line["loss"]):
            raise RuntimeError(
                f"the loss must stay finite, got {line['loss']} at step {self.done} of the {self.phase}; "
                f"restart with a lower --lr than {self.recipe.lr:g}"
            )
        line["seconds"] = round(time.perf_counter() - began, 3)
        self.history.append(line)
        return line

    def state(self) -> dict[str, Any]:
        return {
            "options": self.identity,
            "network": self.network.state_dict(),
            "sketch": self.network.fingerprint.sketch,
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "phase": self.phase,
            "done": self.done,
            "history": list(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken, which must be of the same options and the same classifier."""
        own = self.network.fingerprint
        if not own.same(Fingerprint(own.layout, state["sketch"].cpu())):
            raise ValueError("the checkpoint must be of this classifier, got one of another; begin anew with --restart")
        self.phase, self.done = state["phase"], state["done"]
        self.network.load_state_dict(state["network"])
        self.optimiser = self._optimiser()
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"].cpu())
        self.history = list(state["history"])

    def judge(self) -> dict[str, float]:
        """On held-out images: the mask's area, and the mean probability of the class kept and removed, by blur."""
        self.network.eval()
        sums = dict.fromkeys(("area", "probability", "kept", "removed", "area_of_other"), 0.0)
        images = self.held_out[:: -(-len(self.held_out) // JUDGED)]
        with torch.no_grad():
            for some in images.split(self.recipe.batch):
                for name, value in self._judged(self._input(some)).items():
                    sums[name] += float(value.sum()) / len(images)
        return {name: round(value, 4) for name, value in sums.items()}

    def _judged(self, x: Pictures) -> dict[str, Tensor]:
        logits, maps = self.encoder(lambda: self.model(x))
        label = logits.argmax(1)
        mask, other = (self.network(maps, each) for each in (label, (label + 1) % self.network.classes))
        large, rest = _resized(mask, x), self.phi.blur(x)
        views = {"probability": x, "kept": self.phi(x, large, rest), "removed": self.phi(x, 1 - large, rest)}
        found = {name: self.model(view).softmax(1).gather(1, label[:, None]) for name, view in views.items()}
        return found | {"area": mask.mean((1, 2, 3)), "area_of_other": other.mean((1, 2, 3))}

    def _select(self) -> dict[str, Tensor]:
        """Does this class occur? Cross-entropy of the selector alone."""
        _, label, maps = self._batch()
        asked, fake = self._asked(label, self.recipe.fake_selector)
        logit = self.network.exists(maps[-1].float(), asked)
        loss = F.binary_cross_entropy_with_logits(logit, (~fake).float())
        self._descend(loss)
        return {"loss": loss, "accuracy": ((logit > 0) == ~fake).float().mean()}

    def _decode(self) -> dict[str, Tensor]:
        x, label, maps = self._batch()
        asked, fake = self._asked(label, self.recipe.fake_decoder)
        with self._precision():
            mask = self.network(maps, asked)
        large = _resized(mask, x)
        noisy, rest = self.phi.noisy(x, self.generator), self.phi.rest(x, self.generator)
        both = torch.cat([self.phi(noisy, large, rest), self.phi(noisy, 1 - large, rest)])
        with self._precision():
            logits = validate.output(self.model(both), len(both)).float()
        kept, removed = logits.chunk(2)
        loss = self.loss(mask, kept, removed, label, fake).mean()
        self._descend(loss)
        real = ~fake
        shares = {"kept": kept, "removed": removed}
        told = {name: _share(each.detach(), label, real) for name, each in shares.items()}
        return {"loss": loss, "area": _mean(mask.mean((1, 2, 3)), real), **told}

    def _batch(self) -> tuple[Pictures, Int[Tensor, "n"], Any]:
        """Fresh images, what the classifier calls them, and its feature maps."""
        which = torch.randint(len(self.x), (self.recipe.batch,), generator=self.generator, device=self.device)
        x = self._input(crop_and_flip(self.x[which], self.generator, reach=self.x.shape[1] // 8))
        with torch.no_grad(), self._precision():
            output, maps = self.encoder(lambda: self.model(x))
        return x, validate.output(output, len(x)).argmax(1), maps

    def _asked(self, label: Int[Tensor, "n"], share: float) -> tuple[Tensor, Tensor]:
        """The classes to ask for: the true one, or, in `share` of the cases, any other."""
        classes = self.network.classes
        fake = torch.rand(len(label), generator=self.generator, device=self.device) < share
        other = torch.randint(1, max(2, classes), (len(label),), generator=self.generator, device=self.device)
        return torch.where(fake, (label + other) % classes, label), fake

    def _descend(self, loss: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def _optimiser(self) -> torch.optim.Adam:
        own = list(self.network.selector.parameters())
        rest = [each for each in self.network.parameters() if each is not own[0]]
        chosen = own if self.phase == "selector" else rest
        for each in self.network.parameters():
            each.requires_grad_(any(each is one for one in chosen))
        return torch.optim.Adam(
            chosen, self.recipe.lr, weight_decay=self.recipe.weight_decay, fused=self.on_gpu or None
        )

    def _set_rate(self, share: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.lr * (1 + math.cos(math.pi * share)) / 2

    def _input(self, pixels: Pixels) -> Pictures:
        return (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std

    def _precision(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.on_gpu else nullcontext()


def fresh(recipe: Recipe, model: nn.Module, x: Pictures) -> tuple[MaskNet, Encoder]:
    """A network for this classifier with the first weights of the recipe's seed, and what feeds it."""
    encoder = Encoder.of(model, x)
    with torch.no_grad():
        output, maps = encoder(lambda: model(x))
    channels, classes = [each.shape[1] for each in maps], validate.output(output, len(x)).shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        network = MaskNet(encoder.stages, channels, classes, Fingerprint.of(model), recipe.width)
    return network, encoder


def digest(*pixels: Tensor) -> str:
    """The same for the same images in the same order."""
    found = sha256()
    for each in pixels:
        found.update(each.cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _resized(mask: Tensor, x: Pictures) -> Tensor:
    same = mask.shape[2:] == x.shape[2:]
    return mask if same else F.interpolate(mask, x.shape[2:], mode="bilinear", align_corners=False)


def _share(logits: Tensor, label: Tensor, real: Tensor) -> Tensor:
    return _mean(logits.softmax(1).gather(1, label[:, None])[:, 0], real)


def _mean(values: Tensor, real: Tensor) -> Tensor:
    """Over the images that were asked for a class of their own."""
    return (values.detach() * real).sum() / real.sum().clamp_min(1)
