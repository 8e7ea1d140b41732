"""Real-time saliency: the mask that a trained network gives in one forward pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.mask_network import checks as masking
from moreaugrad.methods.mask_network.networks import Encoder, Fingerprint, MaskNet
from moreaugrad.model import inputs
from moreaugrad.model.prepared import fingerprint, numerics
from moreaugrad.results import Explanation
from moreaugrad.types import Target


@dataclass(frozen=True, eq=False)
class MaskNetwork(Method):
    """Mask (N, 1, H, W) in [0, 1]: the smallest smooth region that shows the class and, removed, hides it.

    A network trained for this very classifier (`moreaugrad train-mask`) says it in one forward, without a gradient.
    Of any other classifier it knows nothing, so that one is refused. The score plays no part.
    """

    network: str | Path | MaskNet | None = None  # a file of train-mask, or what `load_mask_network` returns
    confidence: float = 0.0  # the higher, the surer a place must be of the class; 0 to 6

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        validate.number("confidence", self.confidence)
        masking.classifier(self.forward_func)
        self._check()

    @property
    def once(self) -> bool:
        return True

    @property
    def differentiable(self) -> bool:
        return True

    @property
    def second_order(self) -> bool:
        return False

    @cached_property
    def trained(self) -> MaskNet:
        """The network, as it was stored."""
        return self.network if isinstance(self.network, MaskNet) else load_mask_network(self.network)

    @cached_property
    def _copies(self) -> dict[Any, MaskNet]:
        """The network on the devices and in the precisions that were asked for."""
        return {}

    @cached_property
    def _known(self) -> list[Any]:
        """The mark of the classifier that was found to be the right one."""
        return []

    def __getstate__(self) -> dict[str, Any]:
        own = ("_copies", "_known")  # of this process
        return {key: value for key, value in super().__getstate__().items() if key not in own}

    def compute(self, call: Call) -> Explanation:
        masking.images(tuple(call.x.shape), len(call.packing.shapes))
        self._check()
        encoder = Encoder(masking.classifier(self.forward_func), self.trained.stages)
        network = self._network(call.x)
        wanted = _classes(call.score.target, call.score.owners(call.x), self.trained.classes)
        found: list[Tensor] = []
        while (done := sum(map(len, found))) < len(call.x):
            size = call.score.engine.rows
            rows = torch.arange(done, done + size, device=call.x.device)
            rows = torch.where(rows < len(call.x), rows, rows % len(call.x))  # padded: one shape in any company
            try:
                found.append(self._masks(call, encoder, network, rows, wanted)[: len(call.x) - done])
            except torch.OutOfMemoryError as error:
                call.score.engine.halve_rows(size, error)
            call.watch(min(done + size, len(call.x)), len(call.x), {})
        coarse = torch.cat(found)
        large = F.interpolate(coarse, call.x.shape[2:], mode="bilinear", align_corners=False)
        return Explanation(map=large.clamp(0, 1), gradients=call.each(0), coarse=coarse)

    def _masks(
        self, call: Call, encoder: Encoder, network: MaskNet, rows: Int[Tensor, "r"], wanted: Int[Tensor, "n"]
    ) -> Float[Tensor, "r 1 i j"]:
        score, x = call.score, call.x[rows]
        owners = score.owners(call.x)[rows]
        extra = [inputs.take_argument(argument, owners, score.images) for argument in score.arguments]
        with numerics("float32", x.is_cuda):
            answer, maps = encoder(lambda: score.engine(score.unpack(x), extra))
            output = validate.output(answer, len(x))
            masking.classes(output.reshape(len(x), -1).shape[1], network.classes)
            if score.unchecked and int(rows[0]) == 0:  # once: the target speaks of all images
                validate.target_fits(score.target, tuple(output.shape), score.kind)
            validate.finite_score(output.detach().reshape(len(x), -1).sum(1))
            found: Tensor = network([each.to(x.dtype) for each in maps], wanted[rows], self.confidence)
        return found

    def _network(self, x: Tensor) -> MaskNet:
        key = x.device, x.dtype
        if key not in self._copies:
            self._copies[key] = copy.deepcopy(self.trained).to(*key).eval().requires_grad_(False)
        return self._copies[key]

    def _check(self) -> None:
        """Refuses a classifier with other weights; looked at anew only once they changed."""
        model: nn.Module = masking.classifier(self.forward_func)
        seen = fingerprint(model)
        if not self._known or self._known[0] != seen:
            named = self.trained if isinstance(self.network, MaskNet) else self.network
            masking.same_classifier(self.trained.fingerprint.same(Fingerprint.of(model)), named)
            self._known[:] = [seen]


def load_mask_network(path: str | Path | None) -> MaskNet:
    """A file of `moreaugrad train-mask`, on the CPU."""
    from safetensors import SafetensorError, safe_open

    file = masking.network_file(path)
    try:
        with safe_open(file, "pt") as stored:
            notes = dict(stored.metadata() or {})
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"network must be a readable .safetensors file, got {str(path)!r}: {error}") from None
    return MaskNet.built(tensors, notes, path)


def _classes(target: Target, owners: Int[Tensor, "n"], classes: int) -> Int[Tensor, "n"]:
    """The class of each image, from every form of a target that names one."""
    if target is None:
        return torch.zeros_like(owners)
    own = inputs.take_target(target, owners)
    if isinstance(own, tuple | int):
        own = [own] * len(owners)
    if isinstance(own, list):
        own = [each[0] if isinstance(each, tuple) and len(each) == 1 else each for each in own]
        if not all(isinstance(each, int) for each in own):
            masking.class_numbers(target)
    numbers = torch.as_tensor(own, device=owners.device, dtype=torch.long).reshape(-1).expand(len(owners))
    return numbers % classes
