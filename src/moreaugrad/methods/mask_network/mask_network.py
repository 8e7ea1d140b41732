"""Real-time saliency: the mask that a trained network gives in one forward pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.chunks import cache_of, run_in_chunks
from moreaugrad.methods.mask_network.decoder import MaskNet
from moreaugrad.methods.mask_network.encoder import TRAIN, Encoder, Fingerprint, find_classifier
from moreaugrad.model.inputs import take_argument, take_target
from moreaugrad.model.prepared import fingerprint, numerics
from moreaugrad.results import Explanation
from moreaugrad.types import Target


@dataclass(frozen=True, eq=False)
class MaskNetwork(Method):
    """Mask (N, 1, H, W) in [0, 1] from a network trained once for a classifier (Dabkowski and Gal, 2017).

    The mask is the smallest smooth region that shows the class and, removed, hides it. Use it where maps must be
    fast: it costs one forward pass and no gradient. The network belongs to the classifier it was trained for by
    `moreaugrad train-mask`; any other classifier is refused. The kind of score plays no part.

    Args:
        forward_func: the classifier, as a module or a callable that holds one.
        network: a file of `moreaugrad train-mask`, or a network that `load_mask_network` returned.
        confidence: how sure a position must be of the class, from 0 to 6; larger values give smaller masks.

    Raises:
        ValueError: if the file is missing or damaged, or the classifier is another one.

    Example:
        >>> mg.MaskNetwork(net, "mask.safetensors")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ValueError: network must be the file of a trained mask network, got 'mask.safetensors'; train one: ...
    """

    network: str | Path | MaskNet | None = None
    confidence: float = 0.0

    once = True
    differentiable = True
    second_order = False

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.number("confidence", self.confidence)
        if not isinstance(self.score, str):
            raise ValueError(
                f"score must be left out for a mask network, which was trained to show a class, got {self.score!r}"
            )
        self._check()

    @cached_property
    def trained(self) -> MaskNet:
        """The network, as it was stored."""
        return self.network if isinstance(self.network, MaskNet) else load_mask_network(self.network)

    def compute(self, call: Call) -> Explanation:
        shape, inputs = tuple(call.x.shape), len(call.packing.shapes)
        if inputs != 1 or len(shape) != 4:
            raise ValueError(
                f"a mask network explains one batch of images (N, C, H, W), got {inputs} input(s), "
                f"the first of shape {shape}"
            )
        self._check()
        encoder = Encoder(find_classifier(self.forward_func), self.trained.stages, (shape[2], shape[3]))
        network = self._network(call.x)
        classes = _class_numbers(call.score.target, call.score.owners(call.x), self.trained.classes)
        make = partial(self._masks, call, encoder, network, classes)
        (coarse,) = run_in_chunks(call.score.engine, call.x, make, watch=call.watch)
        large = F.interpolate(coarse, call.x.shape[2:], mode="bilinear", align_corners=False)
        return Explanation(map=large.clamp(0, 1), gradients=call.each(0), coarse=coarse)

    def _masks(
        self, call: Call, encoder: Encoder, network: MaskNet, classes: Int[Tensor, "n"], rows: Int[Tensor, "r"]
    ) -> tuple[Float[Tensor, "r 1 i j"]]:
        score, x = call.score, call.x[rows]
        owners = score.owners(call.x)[rows]
        extra = [take_argument(argument, owners, score.images) for argument in score.arguments]
        with numerics("float32", x.is_cuda):
            answer, maps = encoder(lambda: score.engine(score.unpack(x), extra, plain=True))
            output = score.read(answer, len(x))
            if (found := output[0].numel()) != network.classes:
                raise ValueError(
                    f"the mask network knows {network.classes} classes, got a classifier with {found}; "
                    f"train another: {TRAIN}"
                )
            if score.unchecked and int(rows[0]) == 0:  # once: the target is that of all images
                validate.target_fits(score.target, tuple(output.shape), score.kind)
            validate.finite_score(output.detach().reshape(len(x), -1).sum(1))
            masks: Tensor = network([each.to(x.dtype) for each in maps], classes[rows], self.confidence)
        return (masks,)

    def _network(self, x: Tensor) -> MaskNet:
        key, kept = (x.device, x.dtype), cache_of(self)
        if key not in kept:
            kept[key] = copy.deepcopy(self.trained).to(*key).eval().requires_grad_(False)
        return kept[key]  # type: ignore[no-any-return]

    def _check(self) -> None:
        """Refuses a classifier with other weights; compares them again only after they changed."""
        model = find_classifier(self.forward_func)
        version, kept = fingerprint(model), cache_of(self)
        if kept.get("version") == version:
            return
        if not self.trained.fingerprint.same(Fingerprint.of(model)):
            named = self.trained if isinstance(self.network, MaskNet) else self.network
            raise ValueError(
                f"the mask network must be used with the classifier that it was trained for, got another one for "
                f"{str(named)!r}; load the weights that it was trained with, or train it again: {TRAIN}"
            )
        kept["version"] = version


def load_mask_network(path: str | Path | None) -> MaskNet:
    """Reads a file of `moreaugrad train-mask`, on the CPU.

    Args:
        path: the .safetensors file.

    Returns:
        The network, in evaluation mode and without gradients.

    Example:
        >>> mg.load_mask_network("mask.safetensors")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ValueError: network must be the file of a trained mask network, got 'mask.safetensors'; train one: ...
    """
    from safetensors import SafetensorError, safe_open

    if path is not None and not isinstance(path, str | Path):
        raise TypeError(f"network must be a file or a MaskNet, got {type(path).__name__}; train one: {TRAIN}")
    if path is None or not Path(path).is_file():
        got = None if path is None else str(path)
        raise ValueError(f"network must be the file of a trained mask network, got {got!r}; train one: {TRAIN}")
    try:
        with safe_open(Path(path), "pt") as stored:
            notes = dict(stored.metadata() or {})
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"network must be a readable .safetensors file, got {str(path)!r}: {error}") from None
    return MaskNet.built(tensors, notes, path)


def _class_numbers(target: Target, owners: Int[Tensor, "n"], classes: int) -> Int[Tensor, "n"]:
    """The class of each image, from every form of a target that names one."""
    if target is None:
        return torch.zeros_like(owners)
    own = take_target(target, owners)
    if isinstance(own, tuple | int):
        own = [own] * len(owners)
    if isinstance(own, list):
        own = [each[0] if isinstance(each, tuple) and len(each) == 1 else each for each in own]
        if not all(isinstance(each, int) for each in own):
            raise ValueError(f"a mask network explains one class per image, got target {target!r}; give class numbers")
    numbers = torch.as_tensor(own, device=owners.device, dtype=torch.long).reshape(-1).expand(len(owners))
    return numbers % classes
