"""FGVis: masks of single entries, defended against evidence that the mask itself would make up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.batch import spread, total
from moreaugrad.methods import checks_masks as mask_checks
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.fgvis.gradient_clipping import Guarded
from moreaugrad.methods.mask_optimisation import PHOTO, bounded, chances, noisy
from moreaugrad.model import inputs
from moreaugrad.model.prepared import Engine, fingerprint
from moreaugrad.model.score import ClassScore
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.results import Explanation
from moreaugrad.types import Flags, Images, PerImage

MODES = {"preservation": 1, "deletion": -1}  # the sign of the mask's size in what is minimised
DEFENCES = ("filter", "clip")
GRID = [10 ** (-7.5 + k / 2) for k in range(7)]  # lam of photos of 3 x 224 x 224, searched in three halvings
KEPT, DROPPED = 0.9, 0.05  # share of p_c(x) that a preserving mask keeps; what a deleting one leaves of p_c


@dataclass(frozen=True, eq=False)
class FGVis(Method):
    """e = m x. preservation: min over m in [0, 1] of lam |m|_1 - p_c(e), the map is m; deletion: min of
    p_c(e) - lam |m|_1, the map is 1 - m, and an image is done as soon as the class is no longer the likeliest.

    The defence lets no gradient pass an activation h(e) outside [min(0, h(x)), max(0, h(x))], so that a mask cannot
    excite what x does not; `clip` holds h(e) there as well. Beside each gradient a row of x runs along, which is
    not counted. A search has three rounds within the budget and reports as converged what it asked for.
    """

    mode: str = "preservation"
    defence: str | None = "filter"  # or clip; None for none
    lam: float | None = None  # None: the sparsest map of a grid with p_c(e) >= .9 p_c(x), or p_c(e) < .05
    lr: float = 0.1  # how far the fastest entry moves in a step
    budget: int = 500  # gradients per image
    smoothing: Smoothing | None = None  # noise of x under the mask, fresh in each step
    score: str = field(default="prob", kw_only=True)  # no other
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        mask_checks.probability(self.score, self.get_name())
        validate.one_of("mode", self.mode, MODES)
        if self.defence is not None:
            validate.one_of("defence", self.defence, dict.fromkeys(DEFENCES))
            mask_checks.replaceable(self.forward_func, self.defence)
        if self.lam is not None:
            validate.not_negative("lam", self.lam)
        validate.positive("lr", self.lr)
        validate.at_least("budget", self.budget, 1)
        if self.smoothing is not None and not isinstance(self.smoothing, Smoothing):
            raise TypeError(
                f"smoothing must be a Smoothing or None, got {self.smoothing!r}; write Smoothing(noise_level=0.1)"
            )
        mask_checks.pays(self.get_name(), self.budget, self._samples)
        validate.seed(self.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_guards"}

    @cached_property
    def _guards(self) -> list[tuple[Any, Engine]]:
        """The defended network of the last call, and what it was made of."""
        return []

    @property
    def noise(self) -> Smoothing | None:
        return self.smoothing

    @property
    def _samples(self) -> int:
        return 1 if self.smoothing is None else self.smoothing.samples

    def compute(self, call: Call) -> Explanation:
        if self.defence is None:
            return _Search(self, call, call.score).run()
        score = self._defended(call)
        found = _Search(self, call, score).run()
        return _Search(self, call, score).run() if score.engine.overflowed() else found

    def _defended(self, call: Call) -> ClassScore:
        """The score of the defended network, which takes the rows of x as further arguments."""
        score, x = call.score, call.x
        owners, unpack = score.owners(x), score.unpack
        whole = x.new_zeros(score.images, *x.shape[1:])
        whole[owners] = x
        clean = unpack(whole)
        follow = [isinstance(a, Tensor) and a.ndim > 0 and len(a) == score.images for a in score.arguments]
        made_of = (fingerprint(self.forward_func), len(clean), follow, score.engine.precision, score.engine.compile)
        if not self._guards or self._guards[0][0] != made_of:
            assert isinstance(self.forward_func, nn.Module)
            network = Guarded(self.forward_func, len(clean), follow, clip=self.defence == "clip")
            one = owners[:1]
            network.settle(
                [part[one] for part in clean], [inputs.take_argument(a, one, score.images) for a in score.arguments]
            )
            self._guards[:] = [(made_of, Engine(network, score.engine.precision, score.engine.compile))]
        engine = self._guards[0][1]
        engine.rows = max(1, score.engine.rows // 2)  # for x runs along
        defended = replace(score, engine=engine, arguments=(*clean, *score.arguments))
        if not engine.is_ready():
            defended.prepare(x)
        return defended


class _Search:
    """The masks of one batch: one descent, or several with a weight chosen for each image."""

    def __init__(self, method: FGVis, call: Call, score: ClassScore) -> None:
        self.method, self.call, self.score = method, call, score
        self.keep = method.mode == "preservation"
        self.samples = method._samples
        self.smoothing = method.smoothing or Smoothing(sigma=1.0, samples=1)
        self.sigma = call.smoothed(self.smoothing).sigma * (method.smoothing is not None)
        everyone = torch.arange(len(call.x), device=call.x.device)
        self.chance, likeliest = chances(call.score, call.x, everyone)
        self.predicted = self.chance >= likeliest
        self.spent = torch.zeros_like(everyone)
        self.everyone = everyone

    def run(self) -> Explanation:
        method, x = self.method, self.call.x
        if method.lam is not None:
            lam = x.new_full((len(x),), method.lam)
            mask = self.descend(lam, method.budget // self.samples, 0, method.budget // self.samples)
            return Explanation(map=self._map(mask), gradients=self.spent, eta=lam)
        return self._best()

    def _best(self) -> Explanation:
        """Halves a grid of weights: the larger one is, the sparser the map and the further from what is asked."""
        x, affordable = self.call.x, self.method.budget // self.samples
        grid = x.new_tensor(GRID) * PHOTO / x[0].numel()
        rounds = min(3, affordable)
        place = torch.full_like(self.everyone, 3)
        best, eta = torch.zeros_like(x), torch.zeros_like(self.chance)
        rank = torch.full_like(eta, float("inf"))
        met = torch.zeros_like(self.predicted)
        for turn, stride in enumerate((2, 1, 0)[:rounds]):
            steps = affordable // rounds
            mask = self.descend(grid[place], steps, turn * steps, rounds * steps)
            chance, _ = chances(self.call.score, mask * x, self.everyone)
            holds = self._holds(chance)
            # first those that hold, sparsest before others; of those that do not, the nearest to it
            size = total(self._map(mask)) / x[0].numel()
            found = torch.where(holds, size, 2 - chance if self.keep else 2 + chance)
            better = found < rank
            best = torch.where(spread(better, x), self._map(mask), best)
            rank, eta = torch.where(better, found, rank), torch.where(better, grid[place], eta)
            met = met | holds
            place = place + torch.where(holds, stride, -stride)
        return Explanation(map=best, gradients=self.spent, eta=eta, converged=met)

    def descend(self, lam: PerImage, steps: int, before: int, whole: int) -> Images:
        """Steps on the mask, from all ones; images that are done stay as they are."""
        mask, active = torch.ones_like(self.call.x), self.everyone
        for step in range(steps):
            chance, grad = self._slope(mask[active], active, before + step)
            self.spent[active] += self.samples
            going = ~self._done(chance, mask[active], active)
            active, grad = active[going], grad[going]
            if not len(active):
                break
            mask[active] = self._stepped(mask[active], lam[active], grad)
            self.call.watch(before + step + 1, whole, {})
        self.call.watch(before + steps, whole, {})
        return mask

    def _stepped(self, mask: Images, lam: PerImage, grad: Images) -> Images:
        """The largest move is lr. Entries held at a bound do not count: they would slow down all that can move."""
        pull = MODES[self.method.mode] * (spread(lam, grad) - grad)
        held = ((mask <= 0) & (pull > 0)) | ((mask >= 1) & (pull < 0))
        return (mask - self.method.lr * bounded(pull.masked_fill(held, 0))).clamp(0, 1)

    def _slope(self, mask: Images, active: inputs.Owners, step: int) -> tuple[PerImage, Images]:
        """p_c of the masked images and its gradient at the mask."""
        x, rows = self.call.x[active], self.score.engine.rows
        owners = self.score.owners(self.call.x)[active]
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        for some, copies, chunk in noisy(x, self.sigma[active], self.smoothing, self.call.seed, step, rows):
            masked = (copies * mask[some, None]).flatten(0, 1)
            value, grad = self.score.evaluate(masked, owners[some].repeat_interleave(self.samples), chunk)
            values[some] = value.view(copies.shape[:2]).mean(1)
            grads[some] = (copies * grad.view_as(copies)).mean(1)
        return values, grads

    def _done(self, chance: PerImage, mask: Images, active: inputs.Owners) -> Flags:
        """Deletion ends where the class is gone: below what a search asks for, else no longer the likeliest."""
        if self.keep:
            return torch.zeros_like(chance, dtype=torch.bool)
        if self.method.lam is None:
            return self._holds(chance, active)
        done = torch.zeros_like(chance, dtype=torch.bool)
        doubtful = ((chance <= 0.5) & self.predicted[active]).nonzero().flatten()  # above, no other can be likelier
        if len(doubtful):
            which = active[doubtful]
            found, likeliest = chances(self.call.score, mask[doubtful] * self.call.x[which], which)
            done[doubtful] = found < likeliest
        return done

    def _holds(self, chance: PerImage, which: inputs.Owners | slice = slice(None)) -> Flags:
        """What a search asks of p_c(e). An image of which the class is unlikely from the start must lose more."""
        first = self.chance[which]
        return chance >= KEPT * first if self.keep else chance < DROPPED * (2 * first).clamp(max=1)

    def _map(self, mask: Images) -> Images:
        return mask if self.keep else 1 - mask
