"""RelEx: a mask that explains a whole neighbourhood of noisy copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, spread
from moreaugrad.methods import checks_masks as mask_checks
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.mask_optimisation import PHOTO, generator, noisy
from moreaugrad.model.inputs import Owners
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.results import Explanation
from moreaugrad.types import Images


@dataclass(frozen=True, eq=False)
class Relex(Method):
    """argmin over m in [0, 1] of E[-ln p_c(z m) - lam2 ln(1 - p_c(z (1 - m)))] + lam1 |m|_1, z = x + noise.

    The map is m: what of x, and of its neighbours, makes the class likely when kept and unlikely when taken away.
    What is masked becomes 0, in normalised inputs the mean colour. Steps have unit length and momentum.
    """

    budget: int = 5000  # gradients per image, 2 * steps * samples: decides the samples of a step
    steps: int = 50  # fewer only where the budget does not pay for them
    lr: float = 0.1  # length of a step without momentum
    momentum: float = 0.99
    lam1: float | None = None  # None: 15.05 / entries, which is 1e-4 for photos of 3 x 224 x 224
    lam2: float = 1.0  # weight of what is taken away
    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.1, samples=50))  # its level alone
    score: str = field(default="prob", kw_only=True)  # no other
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        mask_checks.probability(self.score, self.get_name())
        validate.at_least("budget", self.budget, 1)
        mask_checks.pays(self.get_name(), self.budget, 2)
        validate.at_least("steps", self.steps, 1)
        validate.positive("lr", self.lr)
        validate.not_negative("momentum", self.momentum)
        mask_checks.share("momentum", self.momentum)
        validate.not_negative("lam2", self.lam2)
        if self.lam1 is not None:
            validate.not_negative("lam1", self.lam1)
        if not isinstance(self.smoothing, Smoothing):
            raise TypeError(f"smoothing must be a Smoothing, got {self.smoothing!r}; write Smoothing(noise_level=0.1)")
        validate.seed(self.seed)

    @property
    def noise(self) -> Smoothing:
        return replace(self.smoothing, samples=max(1, self.budget // (2 * self._steps)))

    @property
    def _steps(self) -> int:
        return min(self.steps, self.budget // 2)

    def compute(self, call: Call) -> Explanation:
        x, noise, rows = call.x, self.noise, call.score.engine.rows
        sigma = call.smoothed(noise).sigma
        owners = call.score.owners(x)
        lam1 = self.lam1 if self.lam1 is not None else 1e-4 * PHOTO / x[0].numel()
        start = torch.rand(x.shape[1:], generator=generator(call.seed, 0, x.device), dtype=x.dtype, device=x.device)
        mask = (start / 100).expand_as(x).clone()
        speed = torch.zeros_like(x)
        for step in range(self._steps):
            grad = torch.empty_like(x)
            for some, copies, chunk in noisy(x, sigma, noise, call.seed, step, rows):
                grad[some] = self._slope(call, copies, mask[some], owners[some], chunk) + lam1  # |m|_1 of m >= 0
            length = norm(grad)
            speed = self.momentum * speed + grad / spread(torch.where(length > 0, length, torch.ones_like(length)), x)
            mask = (mask - self.lr * speed).clamp(0, 1)
            call.watch(step + 1, self._steps, {})
        return Explanation(map=mask, gradients=call.each(2 * self._steps * noise.samples))

    def _slope(
        self, call: Call, copies: Float[Tensor, "k m *shape"], mask: Images, owners: Owners, chunk: int
    ) -> Images:
        """Gradient of the expectation at the mask, by the chain rule; both terms see the same noisy copies."""
        of = owners.repeat_interleave(copies.shape[1])
        kept, gone = ((copies * m[:, None]).flatten(0, 1) for m in (mask, 1 - mask))
        _, gain = replace(call.score, kind="logprob").evaluate(kept, of, chunk)
        chance, loss = call.score.evaluate(gone, of, chunk)
        left = self.lam2 / (1 - chance + 1e-7)  # -d ln(1 - p) / dp, guarded where the class is certain
        return -(copies * (gain + spread(left, loss) * loss).view_as(copies)).mean(1)
