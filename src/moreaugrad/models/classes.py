"""Which class to explain: by number, by name, by its rank in the prediction, or against another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import index
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.model.score import KINDS
from moreaugrad.types import Images

BLOCK = 64  # images in one call of the network


@dataclass(frozen=True, slots=True)
class Contrast:
    """The score of a class minus that of another: a map of what speaks for one class and against the other.

    With "logprob" and "logit" the maps agree: the normalisation cancels.

    Args:
        against: the class whose score is subtracted.
        kind: "logit", "prob" or "logprob".

    Example:
        >>> method = mg.SparseMoreauGrad(net, score=mg.Contrast(against=2), sparsity=0.1, budget=80)
        >>> method.attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    against: int
    kind: str = "logit"

    def __post_init__(self) -> None:
        object.__setattr__(self, "against", limits.plain_number(self.against))
        if isinstance(self.against, bool) or not isinstance(self.against, int):
            raise TypeError(f"against must be the number of a class, got {self.against!r}")
        validate.one_of("score", self.kind, KINDS)

    def __call__(self, output: Any) -> Tensor:
        logits = validate.find_logits(output)
        if logits is None:
            raise TypeError(f"a contrast needs class scores (N, classes), got {type(output).__name__}; give output too")
        scores = KINDS[self.kind](logits)
        if scores.ndim != 2 or not -scores.shape[1] <= self.against < scores.shape[1]:
            raise ValueError(
                f"against must be a class of the model, got {self.against} for output of shape {tuple(scores.shape)}"
            )
        return scores - scores[:, [self.against]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The class that comes at this place when the network sorts them: 1 is the predicted one."""

    rank: int


Wanted = int | Ranked | None  # None: the predicted class


def find_class(given: int | str, labels: Sequence[str] | None, name: str = "target") -> int:
    """A class by number or by name, whatever its case."""
    if isinstance(given, str) and not given.strip().lstrip("-").isdecimal():
        return _find_name(given, labels, name)
    try:
        number = int(given) if isinstance(given, str) else index(given)
    except TypeError:
        number = None
    if number is None or isinstance(given, bool):
        raise TypeError(f"{name} must be the number or the name of a class, got {given!r}")
    return number + len(labels) if number < 0 and labels else number


def _find_name(given: str, labels: Sequence[str] | None, name: str) -> int:
    if not labels:
        raise ValueError(f"{name} must be a class number where classes have no names, got {given!r}; give labels too")
    found = [index for index, label in enumerate(labels) if label.casefold() == given.strip().casefold()]
    if len(found) > 1:
        raise ValueError(f"{name} must name one class, got {given!r}, the name of classes {found}; give the number")
    if not found:
        close = get_close_matches(given, labels, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"{name} must be a number or one of the {len(labels)} class names, got {given!r}.{hint}")
    return found[0]


def number_targets(target: Any, names: Sequence[str] | None) -> Any:
    """Names of classes as their numbers; anything else as it is."""
    if isinstance(target, str):
        return find_class(target, names)
    named = isinstance(target, list | tuple) and any(isinstance(each, str) for each in target)
    return [find_class(each, names) for each in target] if named else target


def one_each(target: Any, images: int) -> list[Wanted]:
    """A target of numbers as a list with one entry per image."""
    if target is None or isinstance(target, list):
        return [None] * images if target is None else target
    numbers = torch.as_tensor(target).flatten().tolist()
    return numbers * images if len(numbers) == 1 else numbers


def check_top(top: Any, target: Any, options: Mapping[str, Any]) -> None:
    """A number of classes to explain goes without a target, and with one map of each."""
    if top is None:
        return
    validate.at_least("top", top, 1)
    if target is not None:
        raise ValueError(f"top and target exclude each other, got top={top} and target={target!r}; give one")
    for name in ("eta", "sparsity"):
        if isinstance(options.get(name), Sequence):
            raise ValueError(f"{name} must be one number where top is given, got {options[name]!r}")


def choose_classes(
    outputs: Callable[[Images], Tensor], x: Images, wanted: Sequence[Wanted], against: int | None = None
) -> list[int] | None:
    """A class for each image, by the scores (N, classes) that `outputs` gives; None: the predicted ones of all.

    Raises:
        ValueError: for a rank beyond the last class, and for a class that is to be explained against itself.
    """
    if against is None and all(each is None for each in wanted):
        return None
    order = None if all(isinstance(each, int) for each in wanted) else rank_classes(outputs, x)
    found = []
    for row, each in enumerate(wanted):
        if isinstance(each, int) or order is None:
            found.append(int(each))  # type: ignore[arg-type]
            continue
        rank = each.rank if isinstance(each, Ranked) else 1
        if rank > order.shape[1]:
            raise ValueError(f"top must be at most {order.shape[1]}, the number of classes, got {rank}")
        found.append(int(order[row, rank - 1]))
    if against in found:
        how = "given" if order is None else "among the classes with the highest scores"
        raise ValueError(
            f"against must be another class than those that are explained, got {against}, which is {how}; name another"
        )
    return found


def rank_classes(outputs: Callable[[Images], Tensor], x: Images) -> Int[Tensor, "n classes"]:
    """The classes of each image, that of the highest score first."""
    with torch.no_grad():
        output = torch.cat([outputs(part) for part in x.split(BLOCK)])
    if output.ndim != 2:
        raise ValueError(
            f"classes are ranked by scores of shape (N, classes), got output of shape {tuple(output.shape)}; give "
            "target, and leave top and against out"
        )
    return output.argsort(dim=1, descending=True, stable=True)
