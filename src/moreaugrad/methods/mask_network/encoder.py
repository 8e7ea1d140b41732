"""The classifier of a mask network: its feature maps, read by hooks for one call, and its fingerprint."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.methods.cam.layer_capture import forward_hooks
from moreaugrad.methods.cam.layers import PASSIVE, Size, layout, same_proportions
from moreaugrad.validate import _modules

MOST = 4  # resolutions: of a network for 224 pixels 56, 28, 14 and 7, of one for 32 pixels all
NEAR = 0.01  # of a tensor's norm: rounding to bfloat16 moves it by a fifth of that, any training by more
SIGNS = 3
TRAIN = "moreaugrad train-mask --data FOLDER --model NAME --out FILE"

Maps = list[Float[Tensor, "n _ _ _"]]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Reads the outputs of the modules `stages`, finest first, while the classifier runs."""

    classifier: nn.Module
    stages: tuple[str, ...]  # paths below `bare(classifier)`
    image: Size

    @classmethod
    def of(cls, classifier: nn.Module, x: Float[Tensor, "n c h w"]) -> Encoder:
        """The last module at each of the coarsest resolutions; x is one batch to try it on."""
        sizes: dict[str, set[tuple[int, int]]] = {}
        order: list[str] = []

        def note(name: str, _: nn.Module, given: Any, output: Any) -> None:
            found = as_map(output, image)
            size = (0, 0) if found is None or len(found) != len(x) else (found.shape[2], found.shape[3])
            sizes.setdefault(name, set()).add(size if same_proportions(size[0], size[1], image) else (0, 0))
            order.append(name)

        image = x.shape[2], x.shape[3]
        every = {name: each for name, each in bare(classifier).named_modules() if not isinstance(each, PASSIVE)}
        with forward_hooks(every, note), torch.no_grad():
            classifier(x)
        # the last of each size: a stage comes after its own layers. One name must mean one size
        last = {size: name for name in order for size in sizes[name] if len(sizes[name]) == 1 and min(size) > 1}
        coarsest = sorted(last, key=math.prod)[:MOST]
        if not coarsest:
            raise ValueError(
                "the classifier must have feature maps (N, C, H, W), or tokens of a square grid, for a mask network to "
                "read, got none among the outputs of its modules; take another method"
            )
        return cls(classifier, tuple(last[size] for size in reversed(coarsest)), image)

    def __call__(self, run: Callable[[], Any]) -> tuple[Any, Maps]:
        """What `run`, which calls the classifier once, returns; and the maps of the stages."""
        found: dict[str, Tensor] = {}

        def keep(name: str, _: nn.Module, given: Any, output: Any) -> None:
            maps = as_map(output, self.image)
            if maps is not None:
                found[name] = maps

        modules = dict(bare(self.classifier).named_modules())
        self._require_stages(modules)
        with forward_hooks({name: modules[name] for name in self.stages}, keep):
            output = run()
        self._require_stages(found)
        return output, [found[name] for name in self.stages]

    def _require_stages(self, names: Collection[str]) -> None:
        if missing := [name for name in self.stages if name not in names]:
            raise ValueError(
                f"the classifier must have the feature maps {list(self.stages)}, got none at {missing}; "
                f"train a mask network for it: {TRAIN}"
            )


def find_classifier(forward: object) -> nn.Module:
    """The module that a model is, or that a callable holds."""
    found = next((module for _, module in _modules(forward, depth=3)), None)
    if found is None:
        raise TypeError(
            "the model must be an nn.Module, or hold one, for its feature maps to be read, "
            f"got {type(forward).__name__}; pass the classifier itself"
        )
    return found


def bare(model: nn.Module) -> nn.Module:
    """The network inside wrappers that hold one module and no tensor of their own."""
    children = list(model.children())
    own = [*model.parameters(recurse=False), *model.buffers(recurse=False)]
    return bare(children[0]) if len(children) == 1 and not own else model


def as_map(output: Any, image: Size) -> Float[Tensor, "n d i j"] | None:
    """A feature map, from channels in front, channels behind, or tokens of a grid; else None."""
    found = layout(tuple(output.shape), image) if isinstance(output, Tensor) and output.is_floating_point() else None
    return None if found is None else found[2](output)


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Names and shapes exactly; of each tensor its norm and three sums under fixed random signs, to 1 %."""

    layout: str
    sketch: Float[Tensor, "t 4"]

    @classmethod
    def of(cls, model: nn.Module) -> Fingerprint:
        state = {name: t.detach() for name, t in bare(model).state_dict().items() if t.is_floating_point()}
        names = sha256("\n".join(f"{name} {tuple(t.shape)}" for name, t in state.items()).encode()).hexdigest()
        signs = _signs(max((t.numel() for t in state.values()), default=0))
        flat = [tensor.cpu().double().flatten() for tensor in state.values()]
        rows = [torch.cat([each.norm()[None], signs[:, : len(each)] @ each]) for each in flat]
        return cls(names, torch.stack(rows) if rows else torch.zeros(0, 1 + SIGNS, dtype=torch.float64))

    def same(self, other: Fingerprint) -> bool:
        """Whether both are of one classifier."""
        if self.layout != other.layout or self.sketch.shape != other.sketch.shape:
            return False
        norms = torch.maximum(self.sketch[:, 0], other.sketch[:, 0])
        far = (self.sketch - other.sketch).abs().amax(1) if len(norms) else norms
        return bool((far <= NEAR * norms + 1e-6).all())


def _signs(length: int) -> Float[Tensor, "s m"]:
    """The same in every process and version: the raw stream of a generator that has a published definition."""
    raw = np.random.PCG64(0).random_raw(length // 8 + 1).astype("<u8").view(np.uint8)[:length]
    bits = torch.from_numpy(raw.copy())
    return torch.stack([(bits >> place & 1).double() * 2 - 1 for place in range(SIGNS)])
