"""Model fooling: a trained copy of the network that is as accurate and whose maps are wrong.

The one attack that leaves every input as it is. The caller's model is copied, never touched.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.attacks.base import Attack, AttackedModel, predict_logits, read_classes
from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.map_attack import check_differentiable, check_method, fix_seed, magnitude, with_network
from moreaugrad.attacks.model_fooling_losses import KINDS, Maps
from moreaugrad.attacks.result import AttackResult, extend_result
from moreaugrad.batch import total
from moreaugrad.model.prepared import numerics
from moreaugrad.types import Images, Watch, ignore_progress

log = logging.getLogger("moreaugrad")

Classes = Int[Tensor, "n"]
Pair = tuple[Images, Classes]
FORM = "(x, y), images and their classes as two tensors, or an iterable of such pairs, as a DataLoader is"


@dataclass(frozen=True, slots=True, repr=False)
class ModelFoolingResult(AttackResult):
    """The fooled network, judged on the images of the validation, which are `x` and unchanged.

    success: the map is wrong by the limit of its kind, and not blank; kept: the network predicts what it did;
    objective: the figure that is judged; trace: that of the model, then of the fooled network; gradients: those of the
    training, divided among the images.

    Attributes:
        model: the fooled copy.
        method: the attacked method on it.
        fooling: the fooling loss of each batch, before its update.
        ce: the cross-entropy likewise.
        accuracy_before: of the model on the validation.
        accuracy_after: of the fooled copy.
    """

    model: nn.Module = field(kw_only=True)
    method: Any = field(kw_only=True)
    fooling: Float[Tensor, "updates"] = field(kw_only=True)
    ce: Float[Tensor, "updates"] = field(kw_only=True)
    accuracy_before: float = field(kw_only=True)
    accuracy_after: float = field(kw_only=True)

    def _say_more(self) -> str:
        return f"The accuracy of the network went from {self.accuracy_before:.3g} to {self.accuracy_after:.3g}."


@dataclass(frozen=True, eq=False)
class ModelFooling(Attack):
    """Trains weights that minimise `CE + lam * (a loss of the maps)` by Adam, batch norm as in evaluation.

    Use it to see whether a map says anything about a network that was trained to deceive it (Heo et al., 2019). Kinds,
    of maps |m| summed over channels: "location" draws a frame (fooled: at most .2 from it); "topk" empties what was
    the largest tenth (at most .3 left); "centre_mass" moves the centre of mass (by .1 of the image or more); "active"
    exchanges the maps of two `classes` (each nearer to what the other's was). `fool` takes data; `perturb` fools the
    maps of the given images alone. Both return a `ModelFoolingResult`.

    Args:
        attacked: a method whose map can be differentiated, on a `torch.nn.Module`.
        epsilon: must be left out: no input changes.
        kind: "location", "topk", "centre_mass" or "active".
        lam: weight of the loss of the maps; 0 is plain fine-tuning.
        lr: Adam's learning rate.
        steps: number of batches.
        batch_size: of data given as tensors.
        classes: the two classes of kind "active".
        **options: those of `Attack`.

    Example:
        >>> found = mg.ModelFooling(mg.GradCam(net, "0"), steps=2, lr=1e-3).perturb(x)
        >>> torch.equal(found.x, x), found.fooling.shape
        (True, torch.Size([2]))
    """

    unbounded: ClassVar[bool] = True

    epsilon: float = inf
    kind: str = field(default="location", kw_only=True)
    lam: float = field(default=10.0, kw_only=True)
    lr: float = field(default=1e-5, kw_only=True)
    steps: int = field(default=1000, kw_only=True)
    batch_size: int = field(default=8, kw_only=True)
    classes: tuple[int, int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon != inf:
            raise ValueError(
                f"model fooling changes weights and no input, so it has no epsilon, got {self.epsilon}; leave it out"
            )
        check_method(self.attacked)
        check_differentiable(self.attacked)
        validate.one_of("kind", self.kind, KINDS)
        self.check_options(positive="lr", not_negative="lam", counts="steps batch_size")
        _check_classes(self.kind, self.classes)
        _ = self._module  # refused at once where there are no weights to train

    @property
    def _module(self) -> nn.Module:
        """The module whose weights are copied and trained."""
        network = getattr(self.network, "_orig_mod", self.network)
        if not isinstance(network, nn.Module) or not any(p.is_floating_point() for p in network.parameters()):
            raise TypeError(
                "model fooling trains a copy of the model's weights, so the model must be a torch.nn.Module that has "
                f"some, got {type(network).__name__}"
            )
        return network

    def fool(self, data: Any, validation: Any = None, *, callback: Watch | None = None) -> ModelFoolingResult:
        """Trains a copy of the network on `data`, and judges it on `validation`.

        Args:
            data: (x, y), images (N, ...) and classes (N), or an iterable of such pairs, as a DataLoader is.
            validation: likewise; default `data`, where that is a pair of tensors.
            callback: called as `callback(step, total, info)` after each batch.

        Returns:
            The fooled copy of the network and how it does on `validation`.
        """
        if not is_pair("data", data) and validation is None:
            raise ValueError(
                "validation must be given where the data is an iterable, got None; give (x, y) to judge it on"
            )
        validate.evaluating(self.network)
        device = next(self._module.parameters()).device
        rng = torch.random.fork_rng([device] if device.type == "cuda" else [])
        with torch.inference_mode(False), torch.no_grad(), rng:
            pairs = list(read_pairs("validation", data if validation is None else validation, device))
            if not pairs:
                raise ValueError("validation must hold at least one batch, got none")
            x, y = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            return self._fool(data, x.clone(), y, callback or ignore_progress)

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> ModelFoolingResult:
        return self._fool((ball.x, model.target), ball.x, model.target, watch)

    def _fool(self, data: Any, x: Images, y: Classes, watch: Watch) -> ModelFoolingResult:
        kind, original = KINDS[self.kind], fix_seed(self.attacked)
        clean = predict_logits(self.network, x)
        y, count = read_classes(y, clean), int(clean.shape[1])
        if self.classes is not None and max(self.classes) >= count:
            raise ValueError(f"classes must lie in 0..{count - 1}, the classes of the model, got {self.classes!r}")
        method = with_network(original, _trainable_copy(self._module))
        trained = method.forward_func
        batches = repeat_batches(data, count, x.device, self.batch_size, self.seed)
        (fooling, ce), rows = self._train(original, method, batches, watch)
        for weight, own in zip(trained.parameters(), self._module.parameters(), strict=True):
            weight.grad = None
            weight.requires_grad_(own.requires_grad)
        old, new = (self._maps(each, x, y) for each in (original, method))
        figures = torch.stack([kind.figure(old, old), kind.figure(new, old)])
        shown = torch.stack([total(maps) > 0 for maps in new]).all(0)  # a blank map misleads nobody
        success = (figures[1] <= kind.limit) & shown
        model = AttackedModel(trained, y, clean.argmax(1))
        spent = torch.full_like(y, self._count_gradients(method, x, y, rows))
        found = self.make_result(Ball(x, inf, self.norm), model, x, success, figures[1], figures, spent)
        before, after = (float((said == y).double().mean()) for said in (model.predicted, model.predict(x)))
        more = {"fooling": fooling, "ce": ce, "accuracy_before": before, "accuracy_after": after}
        return extend_result(found, ModelFoolingResult, model=trained, method=method, **more)

    def _train(
        self, original: Any, method: Any, batches: Iterator[Pair], watch: Watch
    ) -> tuple[Float[Tensor, "2 updates"], int]:
        """The losses of each batch, and how many images were trained on."""
        weights = [p for p in method.forward_func.parameters() if p.requires_grad]
        adam, trace, rows = torch.optim.Adam(weights, self.lr), [], 0
        for step in range(self.steps):
            batch = next(batches, None)
            if batch is None:
                log.warning(
                    "the data was used up after %d of %d steps; give data that can be read again", step, self.steps
                )
                break
            before = self._maps(original, *batch, together=True) if KINDS[self.kind].needs_before else ()
            with torch.enable_grad(), numerics("float32", batch[0].is_cuda):
                trace.append(self._differentiate(method, weights, batch, before, step))
            adam.step()
            rows += len(batch[0])
            watch(step + 1, self.steps, {"fooling": trace[-1][0], "ce": trace[-1][1]})
        if not trace:
            raise ValueError("data must hold at least one batch, got none")
        return torch.stack(trace, 1), rows

    def _differentiate(
        self, method: Any, weights: list[Tensor], batch: Pair, before: Maps, step: int
    ) -> Float[Tensor, "2"]:
        """Sets the gradients of the weights; returns the fooling loss and the cross-entropy."""
        ce = F.cross_entropy(validate.output(method.forward_func(batch[0].clone()), len(batch[0])), batch[1])
        if not bool(ce.isfinite()):
            raise ValueError(f"the loss must stay finite, got NaN or infinity at step {step}; lower lr or lam")
        fooling = KINDS[self.kind].loss(self._maps(method, *batch, graph=self.lam > 0, together=True), before).mean()
        if step == 0 and self.lam > 0:
            _check_trainable(fooling, weights, method.get_name())
        loss = ce + self.lam * fooling if self.lam > 0 else ce
        for weight, grad in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            weight.grad = grad
        return torch.stack([fooling.detach(), ce.detach().to(fooling.dtype)])

    def _maps(self, method: Any, x: Images, y: Classes, graph: bool = False, together: bool = False) -> Maps:
        """|map| of each pixel for the class, or for each of two. `together`: in one call of the network."""
        size = len(x) if together else None
        wanted = (y,) if self.classes is None else tuple(torch.full_like(y, each) for each in self.classes)
        found = (method.attribute(x, target=each, create_graph=graph, internal_batch_size=size) for each in wanted)
        return tuple(magnitude(maps if graph else maps.detach()) for maps in found)

    def _count_gradients(self, method: Any, x: Images, y: Classes, rows: int) -> int:
        """Sample gradients per image of the validation: its maps, and its part of the training's."""
        one = method.explain(x[:1], target=y[:1]).gradients
        maps = 1 if self.classes is None else 2
        with_slope = int((one + method.slope_cost(one) if self.lam > 0 else one).max())
        single = int(one.max())
        trained = rows * (1 + maps * (with_slope + single * KINDS[self.kind].needs_before))
        return 2 * maps * single + -(-trained // len(x))


def is_pair(name: str, given: Any) -> bool:
    """Whether data is one pair of tensors; refuses what is neither that nor an iterable."""
    if isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(each, Tensor) for each in given):
        return True
    if isinstance(given, Tensor | str | dict) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be {FORM}, got {type(given).__name__}")
    return False


def read_pairs(name: str, given: Any, device: torch.device, count: int = 2**31) -> Iterator[Pair]:
    """The pairs of the data on a device, with one of `count` classes for each image."""
    for each in [given] if is_pair(name, given) else given:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TypeError(f"{name} must be {FORM}, got {type(each).__name__} in it")
        x = validate.one_input(each[0])
        if each[1] is None:
            raise ValueError(f"{name} must hold a class for each image, got None")
        y = read_classes(each[1], torch.empty(1, 1, device=x.device).expand(len(x), count))
        yield x.detach().to(device), y.to(device)


def repeat_batches(data: Any, count: int, device: torch.device, batch_size: int, seed: int) -> Iterator[Pair]:
    """Batches without end: tensors in random order, an iterable as it comes. One that can be read only once ends."""
    if is_pair("data", data):
        generator = torch.Generator().manual_seed(seed)
        ((x, y),) = read_pairs("data", data, data[0].device, count)
        while True:
            for some in torch.randperm(len(x), generator=generator).split(batch_size):
                yield x[some].to(device), y[some].to(device)
    more = True
    while more:
        more = False
        for each in read_pairs("data", data, device, count):
            more = True
            yield each


def _check_classes(kind: str, given: Any) -> None:
    if (kind == "active") != (given is not None):
        raise ValueError(
            f"classes goes with kind='active', and only with it, got kind={kind!r} and classes={given!r}; "
            "give the two classes whose maps are to be exchanged, as in classes=(3, 5)"
        )
    if given is None:
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"classes must be two classes, as in classes=(3, 5), got {given!r}")
    for each in given:
        validate.at_least("classes", each, 0)
    if given[0] == given[1]:
        raise ValueError(f"classes must be two different ones, got {given!r}")


def _trainable_copy(network: nn.Module) -> nn.Module:
    """A copy with weights of its own; those that the model trains, or all of them where it trains none."""
    copied = copy.deepcopy(network)
    none = not any(weight.requires_grad for weight in copied.parameters())
    for weight in copied.parameters():
        weight.grad = None
        weight.requires_grad_(weight.requires_grad or (none and weight.is_floating_point()))
    return copied


def _check_trainable(loss: Tensor, weights: list[Tensor], who: str) -> None:
    reached = loss.requires_grad and any(
        grad is not None for grad in torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    )
    if not reached:
        raise ValueError(
            f"the map of {who} must have a derivative by the model's weights to be fooled, got none; "
            "take another method, such as `gradcam` or `gradient`"
        )
