"""Algorithm 1 of the MoreauGrad paper, kept for comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from moreaugrad import limits, validate
from moreaugrad.envelope.envelope import Envelope, Solution
from moreaugrad.types import Images, Watch, ignore_progress


@dataclass(frozen=True, slots=True)
class PaperAlgorithm:
    """Algorithm 1 of the MoreauGrad paper, kept for comparison.

    steps times: delta <- prox_{gamma eta}((1 - gamma/rho) delta - gamma * gradient). The residual costs one more draw
    after the last step. Needs a fixed eta.

    Args:
        steps: updates.
        gamma: length of an update.
        tail: number of last iterates to average, as the authors' program does (101); such an average is not sparse.

    Example:
        >>> mg.MoreauGrad(net, solver=mg.PaperAlgorithm(steps=20)).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    steps: int = 300
    gamma: float = 0.1
    tail: int = 1

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        validate.at_least("steps", self.steps, 1)
        validate.positive("gamma", self.gamma)
        validate.at_least("tail", self.tail, 1)

    def run(self, problem: Envelope, watch: Watch = ignore_progress) -> Solution:
        if problem.keep is not None:
            raise ValueError(
                f"PaperAlgorithm needs a fixed eta, got sparsity={problem.keep}; give eta=, or take solver=None"
            )
        delta = torch.zeros_like(problem.x)
        average = torch.zeros_like(delta)
        for step in range(self.steps):
            delta = self.step(problem, delta, step)
            if self.steps - step <= self.tail:
                average += delta / min(self.tail, self.steps)
            watch(step + 1, self.steps, {})
        return self._finish(problem, average)

    def step(self, problem: Envelope, delta: Images, draw: int) -> Images:
        _, grad = problem.score.value_and_grad(problem.x + delta, draw)
        moved = (1 - self.gamma / problem.rho) * delta - self.gamma * grad
        return problem.prior.prox(moved, self.gamma * problem.weight(delta))

    def _finish(self, problem: Envelope, delta: Images) -> Solution:
        eta = problem.weight(delta)
        found = problem.measure(delta, eta, range(self.steps, self.steps + 1))
        spent = torch.full((len(delta),), (self.steps + 1) * problem.score.samples, device=delta.device)
        return Solution(delta, *found, eta=eta, gradients=spent)
