"""How steep and how curved a network can be: constants of its layers, composed.

Norms are those of the stored weights, in float64 and rounded up by a relative 1e-12, which covers the errors of the
singular value decomposition and of the products. The rounding of the network's own arithmetic is not in them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.certificates import checks_lipschitz as rules

_UP = 1 + 1e-12
_APART = "windows that do not overlap: kernel_size == stride, padding 0"

Rule = Callable[[Any], "Smoothness"]


@dataclass(frozen=True, slots=True)
class Smoothness:
    """|F(x) - F(y)| <= lipschitz |x - y| and |D^2 F(x)[u, v]| <= curvature |u| |v|, all in l2.

    A score with these has second derivatives from -curvature to curvature: lam and beta of the certificates.
    """

    lipschitz: float
    curvature: float = 0.0  # 0: affine; inf: no second derivative, or none that is bounded

    def __post_init__(self) -> None:
        rules.constants(self.lipschitz, self.curvature)

    def after(self, inner: Smoothness) -> Smoothness:
        """Of the composition: this after `inner`. Constants multiply; s = s_F k_G^2 + k_F s_G."""
        bent = _times(self.curvature, _times(inner.lipschitz, inner.lipschitz))
        return Smoothness(_times(self.lipschitz, inner.lipschitz), bent + _times(self.lipschitz, inner.curvature))

    def __add__(self, other: Smoothness) -> Smoothness:
        """Of the sum of two functions."""
        return Smoothness(self.lipschitz + other.lipschitz, self.curvature + other.curvature)

    def scaled(self, factor: float) -> Smoothness:
        """Of the function times a number."""
        validate.number("factor", factor)
        return Smoothness(_times(abs(factor), self.lipschitz), _times(abs(factor), self.curvature))


ISOMETRY = Smoothness(1.0)
SCORES = {  # of the logits, for any class; the exact constant of the second derivative of a probability is smaller
    "logit": ISOMETRY,
    "prob": Smoothness(math.sqrt(2) / 4 * _UP, 8 / 27 * _UP),
    "logprob": Smoothness(math.sqrt(2) * _UP, 0.5),
}


def smoothness(module: nn.Module, of: int | None = None, score: str = "logit") -> Smoothness:
    """A Lipschitz constant of a network and a bound of its second derivative, composed layer by layer.

    `of`: of the logit of this class alone, for which the last layer, a linear one, counts as its row. `score`: "logit",
    "prob" or "logprob", as one explains it. A layer of another kind tells by a method `smoothness() -> Smoothness`.
    """
    rules.module(module)
    validate.one_of("score", score, SCORES)
    layers = list(_layers(module))
    head: Any = layers[-1] if layers and _is(layers[-1], nn.Linear) else None
    if of is not None:
        rules.row(of, None if head is None else len(head.weight))
    found = ISOMETRY
    for layer in layers:
        alone = of if layer is head and score == "logit" else None
        found = (_layer(layer) if alone is None else _row(layer, alone)).after(found)
    return SCORES[score].after(found)


def spectral_norm(matrix: Float[Tensor, "m n"]) -> float:
    """The largest singular value, rounded up by a relative 1e-12."""
    rules.finite("weights", matrix)
    return float(torch.linalg.matrix_norm(matrix.detach().cpu().double(), 2)) * _UP


def _times(a: float, b: float) -> float:
    """0 * inf is 0: nothing of a function that is constant, or of a curvature that is none, is left.

    A product too small to be told from 0 is rounded up.
    """
    return 0.0 if a == 0 or b == 0 else max(a * b, math.ulp(0.0))


def _is(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Of a kind and with its forward: a subclass may compute anything else."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are called one after the other, as often as they are called."""
    rules.untouched(module)
    if callable(getattr(module, "smoothness", None)):
        yield module
    elif _is(module, nn.Sequential):
        for child in cast(nn.Sequential, module):  # `children` would tell only once of a layer that is used twice
            yield from _layers(child)
    elif _wraps(module):
        yield from _layers(module.get_submodule("network"))
    elif not _is(module, nn.Identity):
        yield module


def _layer(module: nn.Module) -> Smoothness:
    tell = getattr(module, "smoothness", None)
    if callable(tell):
        found = tell()
        rules.told(module, found, Smoothness)
        return found  # type: ignore[no-any-return]  # just checked
    for kind, rule in KINDS.items():
        if _is(module, kind):
            return rule(module)
    raise rules.unknown_layer(module)


def _row(head: Any, of: int) -> Smoothness:
    return Smoothness(spectral_norm(head.weight[of][None]))


def _matrix(module: Any) -> Smoothness:
    return Smoothness(spectral_norm(module.weight))


def _patches(module: Any) -> Smoothness:
    """Patches that do not overlap: the same matrix for each, so its norm is that of the whole."""
    apart = module.kernel_size == module.stride and module.padding in ((0, 0), "valid")
    rules.holds(module, apart and module.dilation == (1, 1) and module.groups == 1, _APART + ", dilation 1, groups 1")
    return Smoothness(spectral_norm(module.weight.flatten(1)))


def _mean(module: Any) -> Smoothness:
    """Averages of k numbers each: norm 1/sqrt(k)."""
    kernel, stride, padding = (_pair(each) for each in (module.kernel_size, module.stride, module.padding))
    rules.holds(module, kernel == stride and padding == (0, 0) and not module.ceil_mode, _APART + ", ceil_mode=False")
    size = kernel[0] * kernel[1]
    return Smoothness(math.sqrt(size) / abs(module.divisor_override or size) * _UP)


def _diagonal(module: Any) -> Smoothness:
    """Batch norm at its stored statistics: each channel times a number of its own."""
    rules.holds(module, module.running_var is not None, "track_running_stats=True")
    rules.evaluating(module)
    scale = (module.running_var.detach().cpu().double() + module.eps).rsqrt()
    if module.weight is not None:
        scale = scale * module.weight.detach().cpu().double()
    rules.finite(f"the weights of {module}", scale)
    return Smoothness(float(scale.abs().max()) * _UP)


def _nothing(module: Any) -> Smoothness:
    """Dropout that drops nothing."""
    rules.evaluating(module)
    return ISOMETRY


def _softplus(module: Any) -> Smoothness:
    """Up to the step of 2e-9/beta where it becomes the identity, at beta v = 20."""
    rules.holds(module, module.beta > 0 and module.threshold >= 20, "beta > 0 and threshold >= 20")
    return Smoothness(1.0, module.beta / 4)


def _leaky(module: Any) -> Smoothness:
    slope = module.negative_slope
    return Smoothness(max(1.0, abs(slope)), 0.0 if slope == 1 else math.inf)


def _same(constants: Smoothness) -> Rule:
    return lambda module: constants


KINDS: dict[type[nn.Module], Rule] = {
    nn.Linear: _matrix,
    nn.Conv2d: _patches,
    nn.AvgPool2d: _mean,
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _diagonal),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout), _nothing),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle), _same(ISOMETRY)),
    nn.Softplus: _softplus,
    nn.Tanh: _same(Smoothness(1.0, 4 / math.sqrt(27) * _UP)),
    nn.Sigmoid: _same(Smoothness(0.25, 1 / math.sqrt(108) * _UP)),
    nn.ReLU: _same(Smoothness(1.0, math.inf)),
    nn.LeakyReLU: _leaky,
}


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


class _Recorder(nn.Module):
    """Stands where a wrapped network was, and answers with numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Tensor] = []
        self.answer = torch.linspace(-20, 21, 14).sinh().view(2, 7)  # of all sizes

    def forward(self, x: Tensor) -> Tensor:
        self.heard.append(x)
        return self.answer.clone()


def _wraps(module: nn.Module) -> bool:
    """Whether a module is `self.network(x)` and nothing else: tried out on a copy without the network."""
    if list(dict(module.named_children())) != ["network"]:
        return False
    double, recorder, x = copy.copy(module), _Recorder(), torch.linspace(-20, 21, 24).sinh().view(2, 3, 2, 2)
    double.__dict__["_modules"] = {"network": recorder}
    try:
        answer = type(module).forward(double, x.clone())
        return len(recorder.heard) == 1 and torch.equal(recorder.heard[0], x) and torch.equal(answer, recorder.answer)
    except Exception:  # whatever it is that such a module does, it is more than to pass on
        return False
