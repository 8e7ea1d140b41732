"""What is taken of the gradients of noisy copies: their mean, their root mean square, how often each is the largest.

Every statistic is a function of three means over the same gradients, so one set of gradients gives them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad.batch import spread, widest
from moreaugrad.model import STATISTICS
from moreaugrad.types import Images, PerImage

SMALL = 8192  # entries up to which all are sorted out at once
REPORTED = ("mean", "rms", "votes", "geometric")  # those of `Explanation.statistics`

Stack: TypeAlias = Float[Tensor, "n 3 *shape"]  # the three means of each image, one after the other


class Moments(NamedTuple):
    """Means over the noisy copies, entry by entry: all that a statistic may depend on.

    Attributes:
        first: mean of the gradients g, signed.
        second: mean of g^2.
        votes: share of the copies in which |g| is among the largest `tau` of the entries.

    Example:
        >>> @mg.register("statistic", "spread_example")
        ... def spread(moments):
        ...     return (moments.second - moments.first.square()).clamp_min(0).sqrt()
        >>> mg.SmoothGrad(net, statistic="spread_example", samples=8).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    first: Images
    second: Images
    votes: Images


Statistic: TypeAlias = Callable[[Moments], Images]


def mean(moments: Moments) -> Images:
    """E g, signed."""
    return moments.first


def rms(moments: Moments) -> Images:
    """sqrt(E g^2)."""
    return _root(moments.second)


def votes(moments: Moments) -> Images:
    """P(|g| is among the largest tau d entries)."""
    return moments.votes


def geometric(moments: Moments) -> Images:
    """sqrt(|E g| sqrt(E g^2))."""
    return _root(moments.first.abs() * _root(moments.second))


def square(moments: Moments) -> Images:
    """E g^2."""
    return moments.second


def log_square(moments: Moments) -> Images:
    """log(1 + E g^2 over its mean over the entries): weak entries count nearly as much as strong ones."""
    level = moments.second.flatten(1).mean(1).clamp_min(torch.finfo(moments.second.dtype).tiny)
    return torch.log1p(moments.second / spread(level, moments.second))


def _root(x: Tensor) -> Tensor:
    """The square root, with a derivative of 0 at 0."""
    alive = x > 0
    return torch.where(alive, torch.where(alive, x, 1.0).sqrt(), 0.0)


def read_statistic(name: str, stack: Stack) -> Images:
    """A statistic by its name, of the three means."""
    found: Images = STATISTICS[name].load()(Moments(*stack.unbind(1)))
    return found


def partials(name: str, stack: Stack, weights: Images | None = None) -> Stack:
    """The derivative of the sum of a statistic by the means, where each entry counts with its weight; None: all alike.

    Of a statistic whose entries depend on their own means alone, it is the derivative of each.
    """
    with torch.enable_grad():
        leaf = stack.detach().requires_grad_()
        found = read_statistic(name, leaf)
        (found,) = torch.autograd.grad(found, leaf, torch.ones_like(found) if weights is None else weights)
    return torch.nan_to_num(found, 0.0, 0.0, 0.0)


def moment_pairs(name: str) -> tuple[tuple[int, int], ...]:
    """The pairs of means whose products the standard error of a statistic needs."""
    statistic: Statistic = STATISTICS[name].load()
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [torch.ones(1, 1, requires_grad=True) for _ in Moments._fields]
        grads = torch.autograd.grad(statistic(Moments(*leaves)).sum(), leaves, allow_unused=True)
    used = [place for place, grad in enumerate(grads) if grad is not None]
    return tuple((j, k) for j in used for k in used if j <= k)


def voting_share(name: str, tau: float, wanted: bool) -> float:
    """tau where votes are wanted, or where the statistic is made of them; else 0, as to count votes costs time."""
    return tau if wanted or (2, 2) in moment_pairs(name) else 0.0


def floor_share(share: float, entries: int) -> int:
    """floor(share * entries), for the share as written: 0.29 of 100 is 29."""
    return math.floor(round(share * entries, 6))


def count_votes(tau: float, entries: int, least: int = 0) -> int:
    """How many entries of a copy get a vote; `least`: where the votes are not what the map is made of."""
    found = max(least, floor_share(tau, entries))
    if found < 1:
        raise ValueError(
            f"tau must keep at least one entry, got tau={tau} of {entries} entries; take tau={1 / entries:.2g} or more"
        )
    return found


def mean_moments(grads: Float[Tensor, "n m *shape"], keep: int) -> Stack:
    """The three means over the copies; each copy votes for its `keep` largest entries, of which there may be none."""
    second, votes = _sum_squares_and_votes(grads, keep)
    return torch.stack([grads.mean(1), second / grads.shape[1], votes / grads.shape[1]], 1)


def part_moments(
    grads: Float[Tensor, "n m *shape"], keep: int, size: int, together: bool = False
) -> Iterator[tuple[Float[Tensor, "n p 3 *shape"], int]]:
    """The same over parts of `size` copies, the last of which may be shorter: parts, and the copies in each of them.

    `together`: all whole parts at once, as a GPU likes it; one by one takes less memory.
    """
    copies = grads.shape[1]
    whole = copies - copies % size if together else 0
    if whole:
        parts = grads[:, :whole].unflatten(1, (-1, size))
        yield mean_moments(parts.flatten(0, 1), keep).unflatten(0, parts.shape[:2]), size
    for part in grads[:, whole:].split(size, 1) if whole < copies else ():
        yield mean_moments(part, keep)[:, None], part.shape[1]


def _sum_squares_and_votes(grads: Float[Tensor, "n m *shape"], keep: int) -> tuple[Images, Images]:
    if keep == 0:
        return grads.square().sum(1), torch.zeros_like(grads[:, 0])
    plain = grads.device.type == "cpu" and grads.dtype in (torch.float32, torch.float64) and not grads.requires_grad
    if not plain or grads[0, 0].numel() <= SMALL:
        return grads.square().sum(1), _vote(grads, keep).count_nonzero(1).to(grads.dtype)
    # copy by copy, which stays in a processor's cache: several times as fast
    second, votes = grads.new_zeros(2, len(grads), *grads.shape[2:])
    for image, copies in enumerate(grads.flatten(2).numpy()):
        squares, counts, size = second[image].view(-1).numpy(), votes[image].view(-1).numpy(), np.empty_like(copies[0])
        for copy in copies:
            np.abs(copy, out=size)
            found = size >= _select(size, keep)
            if np.count_nonzero(found) != keep:  # of equal ones some are too many
                found = largest(torch.from_numpy(size)[None, None], keep)[0, 0].numpy()
            np.add(counts, found, out=counts)
            np.add(squares, np.square(size, out=size), out=squares)
    return second, votes


def _vote(grads: Float[Tensor, "n m *shape"], keep: int) -> Bool[Tensor, "n m *shape"]:
    return largest(grads.detach().abs().flatten(2), keep).view_as(grads)


def largest(sizes: Float[Tensor, "n m d"], keep: int) -> Bool[Tensor, "n m d"]:
    """Exactly `keep` entries of each row; of equal ones the first."""
    bound = rank_value(sizes, keep)
    found = sizes >= bound
    rows = sizes.shape[0] * sizes.shape[1]
    if int(found.count_nonzero()) == rows * keep:  # no entry too many: nothing to count out
        return found
    above, equal = sizes > bound, sizes == bound
    room = keep - above.sum(2, keepdim=True)
    return above | (equal & (equal.cumsum(2) <= room))


def rank_value(sizes: Float[Tensor, "n m d"], rank: int) -> Float[Tensor, "n m 1"]:
    """The entry of each row that `rank` entries, itself among them, are not below."""
    if sizes.device.type != "cpu" or sizes.requires_grad:
        return sizes.kthvalue(sizes.shape[2] - rank + 1, dim=2, keepdim=True).values
    # on a CPU numpy selects many times faster
    rows, place = sizes.numpy(), sizes.shape[2] - rank
    if sizes.shape[2] <= SMALL:
        return torch.from_numpy(np.partition(rows, place, axis=2)[..., place : place + 1])
    return torch.from_numpy(np.apply_along_axis(_select, 2, rows, rank)[..., None])


def _select(row: NDArray[Any], rank: int) -> Any:
    """The entry of a rank, largest first: among those above a level that a sixteenth of the entries suggests."""
    near = min(len(row) // 16, rank // 16 + rank // 100 + 16)
    level = np.partition(row[::16], -near)[-near]
    above = row[np.flatnonzero(row >= level)]  # faster than the mask itself
    some = above if len(above) >= rank else row  # else the sample was far off
    return np.partition(some, len(some) - rank)[len(some) - rank]


class MomentSums:
    """Running weighted means of the three moments, and how much the draws that they come from vary.

    Written in place, image by image or all at once. `pairs`: of which means the products of deviations are summed.
    `sized`: weights are numbers of samples, so that a draw of few varies more; else all draws vary alike.
    """

    def __init__(self, x: Images, pairs: tuple[tuple[int, int], ...], sized: bool) -> None:
        self.pairs, self.sized = pairs, sized
        self.mean: Tensor = x.new_zeros(len(x), 3, *x.shape[1:])
        self.products: Tensor = x.new_zeros(len(x), len(pairs), *x.shape[1:])
        self.weight, self.weight2, self.count = torch.zeros(3, len(x), dtype=widest(x), device=x.device)

    def add(
        self,
        new: Float[Tensor, "n p 3 *shape"],
        weight: float,
        some: slice | Tensor = slice(None),
        held: PerImage | None = None,
    ) -> None:
        """Adds draws of some images, of one weight each; `held`: 0 for an image that starts again with these."""
        mean, products = self.mean[some], self.products[some]
        kept = torch.ones_like(self.weight[some]) if held is None else held.to(self.weight)
        draws, earlier = new.shape[1], kept * self.weight[some]
        self.weight[some] = earlier + draws * weight
        self.weight2[some] = kept * self.weight2[some] + draws * weight**2
        self.count[some] = kept * self.count[some] + draws
        centre = new[:, 0] if draws == 1 else new.mean(1)
        before = centre - mean
        share = draws * weight / self.weight[some]
        mean = mean + before * spread(share.to(mean.dtype), mean)
        if self.pairs:  # no graph: a root has no derivative where nothing varies
            apart, within = before.detach(), (new - centre[:, None]).detach()
            both = torch.stack([apart[:, j] * apart[:, k] for j, k in self.pairs], 1)
            inside = torch.stack([(within[:, :, j] * within[:, :, k]).sum(1) for j, k in self.pairs], 1)
            between = spread((share * earlier).to(mean.dtype), products) * both
            self.products[some] = spread(kept.to(mean.dtype), products) * products + between + weight * inside
        self.mean[some] = mean

    def take(self, which: Tensor) -> MomentSums:
        """The sums of some of the images."""
        some = object.__new__(MomentSums)
        some.pairs, some.sized = self.pairs, self.sized
        for name in ("mean", "products", "weight", "weight2", "count"):
            setattr(some, name, getattr(self, name)[which])
        return some

    def error(self, name: str) -> Images:
        """The standard error of each entry of a statistic, from the first order of its change with the means.

        After one draw 0/0 = NaN says that nothing is known.
        """
        slopes = partials(name, self.mean)  # detached
        parts = zip(self.pairs, self.products.unbind(1), strict=True)
        total = sum((1 + (j != k)) * slopes[:, j] * slopes[:, k] * each for (j, k), each in parts)
        freedom = self.count - 1 if self.sized else (self.weight.square() - self.weight2) / self.weight2
        scale = (1 / (self.weight * freedom)).to(self.mean.dtype)
        variance = total * spread(scale, self.mean[:, 0])
        return variance.clamp_min(0).sqrt()
