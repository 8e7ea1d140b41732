"""The trained part: a class selector and a U-Net decoder, from feature maps and a class to a mask.

Holds no classifier; names the maps that it reads, and knows their classifier by its fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.methods.mask_network.encoder import TRAIN, Fingerprint, Maps
from moreaugrad.threads import initial_weights

FORMAT = "moreaugrad mask network 1"
TINY = 1e-6  # where both channels of the head are zero
SKETCH = "classifier"  # the fingerprint's name among the tensors of a file


class Bottleneck(nn.Module):
    """relu(bn(1x1) of bn-relu(3x3) of bn-relu(1x1) + shortcut): a residual block that is thin in the middle."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        thin = max(1, after // 4)
        self.body = nn.Sequential(
            *_layer(before, thin, 1),
            *_layer(thin, thin, 3),
            nn.Conv2d(thin, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h w"]:
        return F.relu(self.body(x) + self.shortcut(x))


class Up(nn.Module):
    """Twice the resolution by pixel shuffle, then the classifier's own map of that resolution beside it."""

    def __init__(self, before: int, skip: int, after: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(*_layer(before, 4 * after, 3), nn.PixelShuffle(2))
        self.join = Bottleneck(after + skip, after)

    def forward(self, x: Float[Tensor, "n c h w"], skip: Float[Tensor, "n s i j"]) -> Float[Tensor, "n d i j"]:
        larger = self.wide(x)
        if larger.shape[2:] != skip.shape[2:]:  # odd sizes, and steps of more than two
            larger = F.interpolate(larger, skip.shape[2:], mode="bilinear", align_corners=False)
        found: Tensor = self.join(torch.cat([larger, skip], 1))
        return found


class MaskNet(nn.Module):
    """Mask |a| / (|a| + |b|) of a class, in [0, 1], at the resolution of the finest map.

    The selector weighs the coarsest map s by sigmoid(<s(u), E_c> - confidence); up-blocks climb to the finest.
    """

    def __init__(
        self, stages: Sequence[str], channels: Sequence[int], classes: int, fingerprint: Fingerprint, width: int = 32
    ) -> None:
        super().__init__()
        self.stages, self.channels = tuple(stages), tuple(channels)  # finest first
        self.classes, self.width, self.fingerprint = classes, width, fingerprint
        deepest, skips = self.channels[-1], self.channels[-2::-1]
        widths = [width * 2**step for step in reversed(range(max(1, len(skips))))]
        self.selector = nn.Embedding(classes, deepest)
        nn.init.normal_(self.selector.weight, 0.0, 1 / deepest)
        self.climb = nn.ModuleList(
            Up(before, skip, after) for before, skip, after in zip([deepest, *widths], skips, widths, strict=False)
        )
        self.flat = nn.Identity() if skips else Bottleneck(deepest, width)  # where there is nothing to climb
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, maps: Maps, target: Int[Tensor, "n"], confidence: float = 0.0) -> Float[Tensor, "n 1 i j"]:
        deepest = maps[-1]
        x = deepest * torch.sigmoid(self.activity(deepest, target) - confidence)
        for up, skip in zip(self.climb, reversed(maps[:-1]), strict=True):
            x = up(x, skip)
        both: Tensor = self.head(self.flat(x))
        both = both if both.dtype == torch.float64 else both.float()  # in half precision TINY would be nothing
        a, b = both.abs().chunk(2, dim=1)
        return a / (a + b + TINY)

    def activity(self, deepest: Float[Tensor, "n c h w"], target: Int[Tensor, "n"]) -> Float[Tensor, "n 1 h w"]:
        """<s(u), E_c>: how much each place looks like the class."""
        # no einsum: this sum gives a row the same value in any batch
        weighed: Tensor = deepest * self.selector(target)[:, :, None, None]
        return weighed.sum(1, keepdim=True)

    def exists(self, deepest: Float[Tensor, "n c h w"], target: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
        """The logit of "this class occurs in the image"."""
        return self.activity(deepest, target).mean((1, 2, 3))

    def notes(self) -> dict[str, str]:
        """What a file must say for the network to be built again."""
        return {
            "format": FORMAT,
            "stages": json.dumps(self.stages),
            "channels": json.dumps(self.channels),
            "classes": str(self.classes),
            "width": str(self.width),
            "layout": self.fingerprint.layout,
        }

    def tensors(self) -> dict[str, Tensor]:
        """What a file must hold, in half precision but for the fingerprint."""
        state = {name: tensor for name, tensor in self.state_dict().items() if tensor.is_floating_point()}
        halves = {name: tensor.half() for name, tensor in state.items()}
        kept = {name: half if half.isfinite().all() else state[name].float() for name, half in halves.items()}
        found = {name: tensor.cpu().contiguous() for name, tensor in kept.items()}
        return found | {SKETCH: self.fingerprint.sketch.float()}

    @classmethod
    def built(cls, tensors: Mapping[str, Tensor], notes: Mapping[str, str], source: object) -> MaskNet:
        """The network that `tensors` and `notes` describe, ready to be used."""
        form, wanted = notes.get("format"), ("stages", "channels", "classes", "width", "layout")
        if form != FORMAT or any(name not in notes for name in wanted):
            raise ValueError(
                f"network must be a file written by train-mask ({FORMAT!r}), got {str(source)!r}, which says {form!r}; "
                f"train one: {TRAIN}"
            )
        rest: dict[str, Any] = dict(tensors)
        fingerprint = Fingerprint(notes["layout"], rest.pop(SKETCH).double())
        stages, channels = json.loads(notes["stages"]), json.loads(notes["channels"])
        with initial_weights(0):  # which the stored ones replace
            network = cls(stages, channels, int(notes["classes"]), fingerprint, int(notes["width"]))
        needed = {name: tuple(t.shape) for name, t in network.state_dict().items() if t.is_floating_point()}
        got = {name: tuple(t.shape) for name, t in rest.items()}
        if needed != got:
            odd = sorted(name for name in needed | got if needed.get(name) != got.get(name))
            raise ValueError(
                f"network must hold the tensors that its notes promise, got {str(source)!r} with other {odd[:3]}; "
                f"the file is damaged: train it again: {TRAIN}"
            )
        network.load_state_dict(rest, strict=False)
        return network.eval().requires_grad_(False)

    def __repr__(self) -> str:
        return f"MaskNet({self.classes} classes, stages {', '.join(self.stages)})"


def _layer(before: int, after: int, size: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, size, padding=size // 2, bias=False), nn.BatchNorm2d(after), nn.ReLU()
