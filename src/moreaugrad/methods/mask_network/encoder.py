"""The classifier as an encoder: its feature maps, one per resolution, found by one forward and read by hooks.

The hooks are gone when a call ends, also after an exception. Never changes the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.methods.layer_search import THROUGH, alike
from moreaugrad.methods.mask_network import checks

MOST = 4  # resolutions: of a network for 224 pixels 56, 28, 14 and 7, of one for 32 pixels all
EXTRA = 5  # tokens that a transformer may hold beside those of its patches

Maps = list[Float[Tensor, "n _ _ _"]]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Reads the outputs of the modules `stages`, finest first, while the classifier runs."""

    classifier: nn.Module
    stages: tuple[str, ...]  # paths below `bare(classifier)`

    @classmethod
    def of(cls, classifier: nn.Module, x: Float[Tensor, "n c h w"]) -> Encoder:
        """The last module at each of the coarsest resolutions; x is one batch to try it on."""
        seen: dict[str, set[tuple[int, int]]] = {}
        order: list[str] = []

        def look(name: str, output: Any) -> None:
            found = as_map(output)
            fits = found is not None and len(found) == len(x) and alike(found.shape[2], found.shape[3], size)
            seen.setdefault(name, set()).add((found.shape[2], found.shape[3]) if found is not None and fits else (0, 0))
            order.append(name)

        size = x.shape[2], x.shape[3]
        every = {name: each for name, each in bare(classifier).named_modules() if not isinstance(each, THROUGH)}
        with _hooked(every, look), torch.no_grad():
            classifier(x)
        # the last of each size: a stage comes after its own layers. One name must mean one size
        last = {size: name for name in order for size in seen[name] if len(seen[name]) == 1 and min(size) > 1}
        coarsest = sorted(last, key=math.prod)[:MOST]
        checks.stages(coarsest)
        return cls(classifier, tuple(last[size] for size in reversed(coarsest)))

    def __call__(self, run: Callable[[], Any]) -> tuple[Any, Maps]:
        """What `run`, which calls the classifier once, returns; and the maps of the stages."""
        found: dict[str, Tensor] = {}

        def keep(name: str, output: Any) -> None:
            maps = as_map(output)
            if maps is not None:
                found[name] = maps

        modules = dict(bare(self.classifier).named_modules())
        checks.paths(self.stages, modules)
        with _hooked({name: modules[name] for name in self.stages}, keep):
            output = run()
        checks.paths(self.stages, found)
        return output, [found[name] for name in self.stages]


def bare(model: nn.Module) -> nn.Module:
    """The network inside wrappers that hold one module and no tensor of their own."""
    children = list(model.children())
    own = [*model.parameters(recurse=False), *model.buffers(recurse=False)]
    return bare(children[0]) if len(children) == 1 and not own else model


def as_map(output: Any) -> Float[Tensor, "n d i j"] | None:
    """A feature map, from channels in front, channels behind, or tokens of a square grid; else None."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        return None
    if output.ndim == 4:
        behind = output.shape[1] == output.shape[2] != output.shape[3]
        return output.permute(0, 3, 1, 2) if behind else output
    if output.ndim != 3:
        return None
    side = math.isqrt(output.shape[1])
    if side < 2 or output.shape[1] - side * side > EXTRA:
        return None
    grid: Tensor = output[:, output.shape[1] - side * side :].transpose(1, 2).unflatten(2, (side, side))
    return grid


@contextmanager
def _hooked(modules: dict[str, nn.Module], tell: Callable[[str, Any], None]) -> Iterator[None]:
    handles = []
    try:
        for name, module in modules.items():
            # the name is bound now: the loop's variable will have moved on
            def hook(_: nn.Module, given: Any, output: Any, name: str = name) -> None:
                tell(name, output)

            handles.append(module.register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()
