"""The derivative of a statistic of gradients under noise, such as their root mean square or their votes.

With the moments m = E(g, g^2, vote) at y = x + delta and a cotangent w of the statistic s, w pulls back to weights
a_j = w ds/dm_j on the moments, and these to y:
    first and second:  E[H(z) (a_1 + 2 a_2 g(z))], H the Hessian of the score at y + z;
    votes, and all of them where second derivatives are not wanted:  E[(<a, m(z)> - mean) z] / sigma^2  (Stein).
Votes jump, but their mean over Gaussian noise is smooth, and Stein's identity is its derivative. Where the solution
follows the input (rho > 0), delta = -rho * map adds -rho times what the map of the mean pulls back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.envelope.derivative import Covariance, Derivative, Frozen, Sized, with_graph
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.model.smoothing import SmoothedScore, antithetic
from moreaugrad.model.statistics import Stack, largest, partials
from moreaugrad.types import Images

VOTES = 2  # the place of the votes among the moments


def pull_statistic(slope: Derivative, problem: Envelope, delta: Images, moments: Stack, w: Images) -> Images:
    """d loss/dx from w = d loss/d statistic, at the solution delta, where the gradients have these moments."""
    weights = partials(problem.statistic, moments, w)
    at = problem.x + delta
    noisy = isinstance(problem.score, SmoothedScore)
    smooth = weights[:, :VOTES] if slope.second_order or not noisy else torch.zeros_like(weights[:, :VOTES])
    found = torch.zeros_like(at)
    if bool(smooth.any()):
        found = found + _pull_gradients(slope, problem, at, smooth)
    rest = weights.clone()
    rest[:, :VOTES] -= smooth
    if bool(rest.any()) and noisy:
        found = found + _pull_by_noise(slope, problem, at, rest)
    if problem.rho == 0 or isinstance(slope, Frozen):
        return found
    none = at.new_zeros(len(at))
    return found - problem.rho * slope.pull(problem, delta, none, found)


def _pull_gradients(slope: Derivative, problem: Envelope, at: Images, weights: Float[Tensor, "n 2 *shape"]) -> Images:
    """E[H(z) (a_1 + 2 a_2 g(z))], on the noise under which this derivative takes a Hessian."""
    score: Any = problem.score
    if isinstance(slope, Frozen) and isinstance(score, SmoothedScore):
        score = score.base
    draws = slope.draws(problem) if isinstance(slope, Sized) else [(score, 0)]
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        total = torch.zeros((), dtype=at.dtype, device=at.device)
        for each, draw in draws:
            for some, grad in _gradients(with_graph(each), leaf, draw):
                first, second = weights[some].unbind(1)
                total = total + (first[:, None] * grad + second[:, None] * grad.square()).mean(1).sum() / len(draws)
        (found,) = torch.autograd.grad(total, leaf, allow_unused=True)
    return torch.zeros_like(at) if found is None else found


def _gradients(score: Any, at: Images, draw: int) -> Any:
    """Gradients of the copies (images, copies, ...), block by block; of a score without noise the one copy."""
    if isinstance(score, SmoothedScore):
        for some, _, grad in score.each(at, draw, score.samples):
            yield some, grad
    else:
        yield slice(None), score.value_and_grad(at)[1][:, None]


def _pull_by_noise(slope: Derivative, problem: Envelope, at: Images, weights: Stack) -> Images:
    """E[(<a, m(z)> - mean) z] / sigma^2: first derivatives only."""
    score: Any = problem.score
    score = replace(score, smoothing=replace(score.smoothing, fixed=False))  # a few fixed vectors are not enough
    way = slope if isinstance(slope, Covariance) else Covariance()
    draws = way.draws(replace(problem, score=score))
    found = torch.zeros_like(at)
    for _, draw in draws:
        noise = antithetic(tuple(at.shape[1:]), score.samples, score.seed, draw, at)
        for some, _, grad in score.each(at, draw, score.samples):
            first, second, votes = weights[some].unbind(1)
            value = first[:, None] * grad + second[:, None] * grad.square()
            if problem.voted:
                value = value + votes[:, None] * largest(grad.abs().flatten(2), problem.voted).view_as(grad)
            value = value.flatten(2).sum(2)
            centred = value - value.mean(1, keepdim=True)
            mean = torch.einsum("nm,m...->n...", centred, noise) / score.samples
            found[some] += mean / score.sigma[some] / len(draws)
    return found


def pull_threshold(threshold: Envelope, dense: Images, w: Images) -> Images:
    """d loss/d statistic from w = d loss/d map, through the prox; its weight counts as a constant."""
    eta = threshold.weight(-dense)
    with torch.enable_grad():
        leaf = dense.detach().requires_grad_()
        (found,) = torch.autograd.grad(threshold.map(threshold.prox(-leaf, eta)), leaf, w)
    return found
