"""RelEx: a mask that explains a whole neighbourhood of noisy copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, spread
from moreaugrad.methods.call import Call
from moreaugrad.methods.mask_optimisation import PHOTO, MaskMethod, generator, noisy_copies
from moreaugrad.model.noise import Smoothing
from moreaugrad.model.targets import Owners
from moreaugrad.types import Images, Outcome


@dataclass(frozen=True, eq=False)
class Relex(MaskMethod):
    """RelEx, `argmin over m in [0, 1] of E[-ln p(z m) - lam2 ln(1 - p(z (1 - m)))] + lam1 |m|_1` with z = x + noise.

    The map is m (Lim et al., 2021): the part of x, and of its noisy neighbours, that makes the class probable when
    kept and improbable when removed. Use it where a mask should hold for a neighbourhood of x and not just for x.
    Masked entries become 0, in normalised inputs the mean colour. Steps have unit length and momentum.

    Args:
        forward_func: a module in evaluation mode, or any callable that returns logits (N, classes).
        budget: gradients per image, 2 * steps * samples; decides the samples of a step.
        steps: number of steps; fewer only where the budget does not pay for them.
        lr: length of a step without momentum.
        momentum: share of the last step that is kept, in [0, 1).
        lam1: weight of the mask's size. None: 15.05 / entries, which is 1e-4 for photos of 3 x 224 x 224.
        lam2: weight of the term for what is removed.
        smoothing: level of the noise; its number of samples is not used.
        score: "prob", no other.
        seed: of the noise and the first mask.

    Example:
        >>> maps = mg.Relex(net, budget=40, steps=4).attribute(x, target=3)
        >>> maps.shape, bool(((maps >= 0) & (maps <= 1)).all())
        (torch.Size([2, 3, 16, 16]), True)
    """

    budget: int = 5000
    steps: int = 50
    lr: float = 0.1
    momentum: float = 0.99
    lam1: float | None = None
    lam2: float = 1.0
    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.1, samples=50))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_budget(self.budget, 2)
        validate.at_least("steps", self.steps, 1)
        validate.positive("lr", self.lr)
        validate.not_negative("momentum", self.momentum)
        if self.momentum >= 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        for name, weight in (("lam1", self.lam1), ("lam2", self.lam2)):
            if weight is not None:
                validate.not_negative(name, weight)
        validate.smooth(self.smoothing, Smoothing, needed=True)

    @property
    def noise(self) -> Smoothing:
        return replace(self.smoothing, samples=max(1, self.budget // (2 * self._steps)))

    @property
    def _steps(self) -> int:
        return min(self.steps, self.budget // 2)

    def compute(self, call: Call) -> Outcome:
        x, noise, rows = call.x, self.noise, call.score.engine.rows
        sigma = call.smoothed(noise).sigma
        owners = call.score.everyone(x)
        lam1 = self.lam1 if self.lam1 is not None else 1e-4 * PHOTO / x[0].numel()
        start = torch.rand(x.shape[1:], generator=generator(call.seed, 0, x.device), dtype=x.dtype, device=x.device)
        mask = (start / 100).expand_as(x).clone()
        velocity = torch.zeros_like(x)
        for step in range(self._steps):
            grad = torch.empty_like(x)
            for some, copies, chunk in noisy_copies(x, sigma, noise, call.seed, step, rows):
                grad[some] = self._gradient(call, copies, mask[some], owners[some], chunk) + lam1  # |m|_1 of m >= 0
            length = norm(grad)
            velocity = self.momentum * velocity + grad / spread(
                torch.where(length > 0, length, torch.ones_like(length)), x
            )
            mask = (mask - self.lr * velocity).clamp(0, 1)
            call.watch(step + 1, self._steps, {})
        return Outcome(mask, gradients=call.each(2 * self._steps * noise.samples))

    def _gradient(
        self, call: Call, copies: Float[Tensor, "k m *shape"], mask: Images, owners: Owners, chunk: int
    ) -> Images:
        """Gradient of the expectation at the mask, by the chain rule; both terms use the same noisy copies."""
        of = owners.repeat_interleave(copies.shape[1])
        kept, removed = ((copies * m[:, None]).flatten(0, 1) for m in (mask, 1 - mask))
        _, gain = replace(call.score, kind="logprob").evaluate(kept, of, chunk)
        probability, loss = call.score.evaluate(removed, of, chunk)
        left = self.lam2 / (1 - probability + 1e-7)  # -d ln(1 - p) / dp, guarded where the class is certain
        return -(copies * (gain + spread(left, loss) * loss).view_as(copies)).mean(1)
