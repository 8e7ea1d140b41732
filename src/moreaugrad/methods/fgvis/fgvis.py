"""FGVis: masks of single entries, defended against evidence that the mask itself would create."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.batch import spread, total
from moreaugrad.methods.base import Call
from moreaugrad.methods.chunks import cache_of
from moreaugrad.methods.fgvis.gradient_clipping import GuardedModel
from moreaugrad.methods.mask_optimisation import PHOTO, MaskMethod, class_probabilities, noisy_copies
from moreaugrad.model.inputs import Owners, take_argument
from moreaugrad.model.prepared import Engine, fingerprint
from moreaugrad.model.score import ClassScore
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.results import Explanation
from moreaugrad.types import Flags, Images, PerImage

MODES = {"preservation": 1, "deletion": -1}  # the sign of the mask's size in what is minimised
DEFENCES = ("filter", "clip")
GRID = [10 ** (-7.5 + k / 2) for k in range(7)]  # lam of photos of 3 x 224 x 224, searched in three halvings
KEPT, DROPPED = 0.9, 0.05  # of p_c(x): the share that preservation keeps, and that deletion leaves


@dataclass(frozen=True, eq=False)
class FGVis(MaskMethod):
    """FGVis, a mask with an entry for each input, `e = m x`, that cannot create evidence (Wagner et al., 2019).

    Preservation minimises `lam |m|_1 - p_c(e)` over m in [0, 1], and the map is m. Deletion minimises
    `p_c(e) - lam |m|_1`, the map is 1 - m, and an image is finished once the class is no longer the likeliest. Use
    it for fine masks. The defence stops gradients at an activation h(e) outside [min(0, h(x)), max(0, h(x))], so
    that a mask cannot excite what x does not. A row of x runs beside each gradient and is not counted.

    Args:
        forward_func: a module in evaluation mode that returns logits (N, classes); any callable without a defence.
        mode: "preservation" or "deletion".
        defence: "filter"; "clip", which also moves h(e) to the nearest bound; or None.
        lam: weight of the mask's size. None: searches a grid in three rounds within the budget for the sparsest map
            with p_c(e) >= 0.9 p_c(x), or p_c(e) < 0.05; `converged` says whether it found one.
        lr: how far the fastest entry moves in a step.
        budget: gradients per image.
        smoothing: noise added to x under the mask, fresh in each step; None: no noise.
        score: "prob", no other.
        seed: of the noise.

    Example:
        >>> found = mg.FGVis(net, budget=12).explain(x, target=3)
        >>> found.map.shape, found.converged.shape
        (torch.Size([2, 3, 16, 16]), torch.Size([2]))
    """

    mode: str = "preservation"
    defence: str | None = "filter"
    lam: float | None = None
    lr: float = 0.1
    budget: int = 500
    smoothing: Smoothing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_of("mode", self.mode, MODES)
        if self.defence is not None:
            validate.one_of("defence", self.defence, dict.fromkeys(DEFENCES))
            model, scripted = self.forward_func, isinstance(self.forward_func, torch.jit.ScriptModule)
            if scripted or not isinstance(model, nn.Module):
                raise TypeError(
                    f"defence={self.defence!r} exchanges the activations of a copy of the model, which must be a "
                    f"torch.nn.Module, got {'a scripted module' if scripted else type(model).__name__}; "
                    "give the module itself, or defence=None for a plain mask"
                )
        if self.lam is not None:
            validate.not_negative("lam", self.lam)
        validate.positive("lr", self.lr)
        if self.smoothing is not None and not isinstance(self.smoothing, Smoothing):
            raise TypeError(
                f"smoothing must be a Smoothing or None, got {self.smoothing!r}; write Smoothing(noise_level=0.1)"
            )
        self._require_budget(self.budget, self._samples)

    @property
    def noise(self) -> Smoothing | None:
        return self.smoothing

    @property
    def _samples(self) -> int:
        return 1 if self.smoothing is None else self.smoothing.samples

    def compute(self, call: Call) -> Explanation:
        if self.defence is None:
            return _MaskSearch(self, call, call.score).run()
        score = self._defended_score(call)
        found = _MaskSearch(self, call, score).run()
        return _MaskSearch(self, call, score).run() if score.engine.overflowed() else found

    def _defended_score(self, call: Call) -> ClassScore:
        """The score of the defended network, which takes the rows of x as additional arguments."""
        score, x = call.score, call.x
        owners, unpack = score.owners(x), score.unpack
        whole = x.new_zeros(score.images, *x.shape[1:])
        whole[owners] = x
        clean = unpack(whole)
        follow = [isinstance(a, Tensor) and a.ndim > 0 and len(a) == score.images for a in score.arguments]
        key = (fingerprint(self.forward_func), len(clean), follow, score.engine.precision, score.engine.compile)
        kept = cache_of(self)
        known, shared = kept.get("made", (None, None))
        if shared is None or known != key:
            assert isinstance(self.forward_func, nn.Module)
            clip = self.defence == "clip"
            network = GuardedModel(self.forward_func, len(clean), follow, clip, self.output)
            one = owners[:1]
            network.probe([part[one] for part in clean], [take_argument(a, one, score.images) for a in score.arguments])
            shared = Engine(network, score.engine.precision, score.engine.compile)
            kept["made"] = key, shared
        engine = shared.for_call(max(1, score.engine.rows // 2))  # x needs the other half
        defended = replace(score, engine=engine, arguments=(*clean, *score.arguments), output=None)
        if not engine.is_ready():
            defended.prepare(x)
        return defended


class _MaskSearch:
    """Finds the masks of one batch: by one descent, or by several with a weight chosen for each image."""

    def __init__(self, method: FGVis, call: Call, score: ClassScore) -> None:
        self.method, self.call, self.score = method, call, score
        self.keep = method.mode == "preservation"
        self.samples = method._samples
        self.smoothing = method.smoothing or Smoothing(sigma=1.0, samples=1)
        self.sigma = call.smoothed(self.smoothing).sigma * (method.smoothing is not None)
        everyone = torch.arange(len(call.x), device=call.x.device)
        self.probability, likeliest = class_probabilities(call.score, call.x, everyone)
        self.predicted = self.probability >= likeliest
        self.spent = torch.zeros_like(everyone)
        self.everyone = everyone

    def run(self) -> Explanation:
        method, x = self.method, self.call.x
        if method.lam is not None:
            lam = x.new_full((len(x),), method.lam)
            mask = self.descend(lam, method.budget // self.samples, 0, method.budget // self.samples)
            return Explanation(map=self._map(mask), gradients=self.spent, eta=lam)
        return self._search_weight()

    def _search_weight(self) -> Explanation:
        """Bisects a grid of weights: a larger one makes the map sparser and takes it further from the goal."""
        x, affordable = self.call.x, self.method.budget // self.samples
        grid = x.new_tensor(GRID) * PHOTO / x[0].numel()
        rounds = min(3, affordable)
        place = torch.full_like(self.everyone, 3)
        best, eta = torch.zeros_like(x), torch.zeros_like(self.probability)
        rank = torch.full_like(eta, float("inf"))
        met = torch.zeros_like(self.predicted)
        for turn, stride in enumerate((2, 1, 0)[:rounds]):
            steps = affordable // rounds
            mask = self.descend(grid[place], steps, turn * steps, rounds * steps)
            probability, _ = class_probabilities(self.call.score, mask * x, self.everyone)
            meets = self._meets_goal(probability)
            # first those that meet the goal, the sparsest before others; of the rest the nearest to it
            size = total(self._map(mask)) / x[0].numel()
            found = torch.where(meets, size, 2 - probability if self.keep else 2 + probability)
            better = found < rank
            best = torch.where(spread(better, x), self._map(mask), best)
            rank, eta = torch.where(better, found, rank), torch.where(better, grid[place], eta)
            met = met | meets
            place = place + torch.where(meets, stride, -stride)
        return Explanation(map=best, gradients=self.spent, eta=eta, converged=met)

    def descend(self, lam: PerImage, steps: int, before: int, whole: int) -> Images:
        """Steps on the mask, from all ones; finished images stay as they are."""
        mask, active = torch.ones_like(self.call.x), self.everyone
        for step in range(steps):
            probability, grad = self._gradient(mask[active], active, before + step)
            self.spent[active] += self.samples
            going = ~self._finished(probability, mask[active], active)
            active, grad = active[going], grad[going]
            if not len(active):
                break
            mask[active] = self._step(mask[active], lam[active], grad)
            self.call.watch(before + step + 1, whole, {})
        self.call.watch(before + steps, whole, {})
        return mask

    def _step(self, mask: Images, lam: PerImage, grad: Images) -> Images:
        """The largest move is lr. Entries held at a bound do not count: they would slow down all others."""
        pull = MODES[self.method.mode] * (spread(lam, grad) - grad)
        held = ((mask <= 0) & (pull > 0)) | ((mask >= 1) & (pull < 0))
        pull = pull.masked_fill(held, 0)
        largest = pull.abs().flatten(1).amax(1)
        return (mask - self.method.lr * pull / spread(torch.where(largest > 0, largest, 1), pull)).clamp(0, 1)

    def _gradient(self, mask: Images, active: Owners, step: int) -> tuple[PerImage, Images]:
        """p_c of the masked images and its gradient at the mask."""
        x, rows = self.call.x[active], self.score.engine.rows
        owners = self.score.owners(self.call.x)[active]
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        for some, copies, chunk in noisy_copies(x, self.sigma[active], self.smoothing, self.call.seed, step, rows):
            masked = (copies * mask[some, None]).flatten(0, 1)
            value, grad = self.score.evaluate(masked, owners[some].repeat_interleave(self.samples), chunk)
            values[some] = value.view(copies.shape[:2]).mean(1)
            grads[some] = (copies * grad.view_as(copies)).mean(1)
        return values, grads

    def _finished(self, probability: PerImage, mask: Images, active: Owners) -> Flags:
        """Deletion ends at the goal of a search, else when the class is no longer the likeliest."""
        if self.keep:
            return torch.zeros_like(probability, dtype=torch.bool)
        if self.method.lam is None:
            return self._meets_goal(probability, active)
        done = torch.zeros_like(probability, dtype=torch.bool)
        doubtful = (
            ((probability <= 0.5) & self.predicted[active]).nonzero().flatten()
        )  # above, no other can be likelier
        if len(doubtful):
            which = active[doubtful]
            found, likeliest = class_probabilities(self.call.score, mask[doubtful] * self.call.x[which], which)
            done[doubtful] = found < likeliest
        return done

    def _meets_goal(self, probability: PerImage, which: Owners | slice = slice(None)) -> Flags:
        """The goal for p_c(e). An image whose class is improbable from the start must lose more."""
        first = self.probability[which]
        return probability >= KEPT * first if self.keep else probability < DROPPED * (2 * first).clamp(max=1)

    def _map(self, mask: Images) -> Images:
        return mask if self.keep else 1 - mask
