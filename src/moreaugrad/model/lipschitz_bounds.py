"""How steep and how curved a network can be: constants of its layers, composed.

Norms are those of the stored weights, in float64 and rounded up by a relative 1e-12, which covers the errors of the
singular value decomposition and of the products. The rounding of the network's own arithmetic is not in them.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate

_UP = 1 + 1e-12
_WAY = "give lipschitz= yourself, or the layer a method `lipschitz_bounds() -> LipschitzBounds`"
_DISJOINT = "windows that do not overlap: kernel_size == stride, padding 0"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Rule = Callable[[Any], "LipschitzBounds"]


@dataclass(frozen=True, slots=True)
class LipschitzBounds:
    """`|F(x) - F(y)| <= lipschitz |x - y|` and `|D^2 F(x)[u, v]| <= curvature |u| |v|`, all in l2.

    A score with these bounds has second derivatives from -curvature to curvature. A layer of your own has them where
    it defines a method `lipschitz_bounds() -> LipschitzBounds`.

    Args:
        lipschitz: at least 0; math.inf for an unknown one.
        curvature: at least 0: 0 for an affine function, math.inf where the second derivative does not exist or is
            not bounded.

    Example:
        >>> tanh, doubled = mg.LipschitzBounds(1.0, 0.77), mg.LipschitzBounds(2.0)
        >>> tanh.after(doubled)  # of tanh(2 x)
        LipschitzBounds(lipschitz=2.0, curvature=3.08)
    """

    lipschitz: float
    curvature: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("lipschitz", self.lipschitz), ("curvature", self.curvature)):
            validate.number(name, value)
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}; math.inf stands for an unknown one")

    def after(self, inner: LipschitzBounds) -> LipschitzBounds:
        """Bounds of the composition, this function after `inner`: k = k_F k_G and s = s_F k_G^2 + k_F s_G."""
        bent = _times(self.curvature, _times(inner.lipschitz, inner.lipschitz))
        return LipschitzBounds(_times(self.lipschitz, inner.lipschitz), bent + _times(self.lipschitz, inner.curvature))

    def __add__(self, other: LipschitzBounds) -> LipschitzBounds:
        """Bounds of the sum of two functions."""
        return LipschitzBounds(self.lipschitz + other.lipschitz, self.curvature + other.curvature)


ISOMETRY = LipschitzBounds(1.0)
SCORES = {  # of the logits, for any class; the exact constant of the second derivative of a probability is smaller
    "logit": ISOMETRY,
    "prob": LipschitzBounds(math.sqrt(2) / 4 * _UP, 8 / 27 * _UP),
    "logprob": LipschitzBounds(math.sqrt(2) * _UP, 0.5),
}


def lipschitz_bounds(module: nn.Module, of: int | None = None, score: str = "logit") -> LipschitzBounds:
    """A Lipschitz constant of a network and a bound of its second derivative, composed layer by layer.

    Use it for networks of layers with exact norms, such as `mg.load_model("lipschitz_cifar10")`; for ordinary networks
    the product over the layers is far too large to be of use. It runs no network.

    Args:
        module: a chain of linear layers, convolutions and poolings without overlap, batch norms in eval mode, smooth
            activations, and layers with a method `lipschitz_bounds()`.
        of: a class: bounds of its logit alone, for which the last layer, a linear one, counts as its row.
        score: "logit", "prob" or "logprob" of the outputs.

    Returns:
        The bounds, in l2, per unit of the input.

    Raises:
        TypeError: a layer has no known constant; the message says what to do.

    Example:
        >>> mg.lipschitz_bounds(torch.nn.Sequential(torch.nn.Sigmoid(), torch.nn.Softplus())).lipschitz
        0.25
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"the network must be a torch.nn.Module, got {type(module).__name__}; {_WAY}")
    validate.one_of("score", score, SCORES)
    layers = list(_layers(module))
    head: Any = layers[-1] if layers and _is(layers[-1], nn.Linear) else None
    if of is not None:
        validate.at_least("of", of, 0)
        if head is None:
            raise ValueError(
                f"of={of} must name a row of a last layer nn.Linear, got a network without; leave `of` out"
            )
        if of >= len(head.weight):
            raise ValueError(f"of must be a class of the network, 0..{len(head.weight) - 1}, got {of}")
    found = ISOMETRY
    for layer in layers:
        row = of is not None and layer is head and score == "logit"
        one = LipschitzBounds(spectral_norm(head.weight[of][None])) if row else _layer(layer)
        found = one.after(found)
    return SCORES[score].after(found)


def spectral_norm(matrix: Float[Tensor, "m n"]) -> float:
    """The largest singular value, rounded up by a relative 1e-12."""
    _check_finite("weights", matrix)
    return float(torch.linalg.matrix_norm(matrix.detach().cpu().double(), 2)) * _UP


def _times(a: float, b: float) -> float:
    """With 0 * inf = 0, and rounded up where it underflows."""
    return 0.0 if a == 0 or b == 0 else max(a * b, math.ulp(0.0))


def _is(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Of a kind and with its forward: a subclass may compute anything else."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are called one after the other, as often as they are called."""
    if "forward" in vars(module) or any(getattr(module, name, None) for name in _HOOKS):  # may compute anything
        raise TypeError(
            f"every layer must compute what its kind says, got {type(module).__name__} with hooks or a forward of "
            f"its own, as weight_norm and spectral_norm have; fold them first, or {_WAY}"
        )
    if _own_bounds(module) is not None:
        yield module
    elif _is(module, nn.Sequential):
        for child in cast(nn.Sequential, module):  # `children` would list a layer that is used twice only once
            yield from _layers(child)
    elif _wraps(module):
        yield from _layers(module.get_submodule("network"))
    elif not _is(module, nn.Identity):
        yield module


def _own_bounds(module: nn.Module) -> Callable[[], Any] | None:
    """The method by which a layer of another kind states its bounds."""
    own = getattr(module, "lipschitz_bounds", None)
    if own is None and (own := getattr(module, "smoothness", None)) is not None:
        name = type(module).__name__
        warnings.warn(f"{name}.smoothness() is now lipschitz_bounds(): rename it", DeprecationWarning, stacklevel=2)
    return own if callable(own) else None


def _layer(module: nn.Module) -> LipschitzBounds:
    own = _own_bounds(module)
    if own is not None:
        found = own()
        if not isinstance(found, LipschitzBounds):
            raise TypeError(
                f"{type(module).__name__}.lipschitz_bounds() must return LipschitzBounds(lipschitz, curvature), "
                f"got {type(found).__name__}"
            )
        return found
    for kind, rule in KINDS.items():
        if _is(module, kind):
            return rule if isinstance(rule, LipschitzBounds) else rule(module)
    raise TypeError(f"every layer must have a known Lipschitz constant, got {type(module).__name__}; {_WAY}")


def _check(module: nn.Module, condition: bool = True, needed: str = "", evaluating: bool = False) -> None:
    """A layer of a known kind may have an option under which its constant is not known."""
    known = f"{type(module).__name__} must {{}} for its Lipschitz constant to be known, got {{}}; {{}}"
    if not condition:
        raise ValueError(known.format(f"have {needed}", module, _WAY))
    if evaluating and module.training:
        raise ValueError(known.format("be in eval mode", "training mode", "call model.eval() first"))


def _check_finite(what: str, weights: Tensor) -> None:
    if not bool(weights.isfinite().all()):
        raise ValueError(f"{what} must be finite, got {int((~weights.isfinite()).sum())} numbers that are not")


def _patches(module: Any) -> LipschitzBounds:
    """Patches that do not overlap: the same matrix for each, so its norm is that of the whole."""
    disjoint = module.kernel_size == module.stride and module.padding in ((0, 0), "valid")
    _check(module, disjoint and module.dilation == (1, 1) and module.groups == 1, _DISJOINT + ", dilation 1, groups 1")
    return LipschitzBounds(spectral_norm(module.weight.flatten(1)))


def _mean(module: Any) -> LipschitzBounds:
    """Averages of k numbers each: norm 1/sqrt(k)."""
    kernel, stride, padding = map(_pair, (module.kernel_size, module.stride, module.padding))
    _check(module, kernel == stride and padding == (0, 0) and not module.ceil_mode, _DISJOINT + ", ceil_mode=False")
    size = math.prod(kernel)
    return LipschitzBounds(math.sqrt(size) / abs(module.divisor_override or size) * _UP)


def _diagonal(module: Any) -> LipschitzBounds:
    """Batch norm at its stored statistics: each channel times a number of its own."""
    _check(module, module.running_var is not None, "track_running_stats=True", evaluating=True)
    scale = (module.running_var.detach().cpu().double() + module.eps).rsqrt()
    if module.weight is not None:
        scale = scale * module.weight.detach().cpu().double()
    _check_finite(f"the weights of {module}", scale)
    return LipschitzBounds(float(scale.abs().max()) * _UP)


def _nothing(module: Any) -> LipschitzBounds:
    """Dropout that drops nothing."""
    _check(module, evaluating=True)
    return ISOMETRY


def _softplus(module: Any) -> LipschitzBounds:
    """Up to the step of 2e-9/beta where it becomes the identity, at beta v = 20."""
    _check(module, module.beta > 0 and module.threshold >= 20, "beta > 0 and threshold >= 20")
    return LipschitzBounds(1.0, module.beta / 4)


def _leaky(module: Any) -> LipschitzBounds:
    slope = module.negative_slope
    return LipschitzBounds(max(1.0, abs(slope)), 0.0 if slope == 1 else math.inf)


KINDS: dict[type[nn.Module], Rule | LipschitzBounds] = {
    nn.Linear: lambda module: LipschitzBounds(spectral_norm(module.weight)),
    nn.Conv2d: _patches,
    nn.AvgPool2d: _mean,
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _diagonal),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout), _nothing),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle), ISOMETRY),
    nn.Softplus: _softplus,
    nn.Tanh: LipschitzBounds(1.0, 4 / math.sqrt(27) * _UP),
    nn.Sigmoid: LipschitzBounds(0.25, 1 / math.sqrt(108) * _UP),
    nn.ReLU: LipschitzBounds(1.0, math.inf),
    nn.LeakyReLU: _leaky,
}


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _wraps(module: nn.Module) -> bool:
    """Whether a module is `self.network(x)` and nothing else: tried out on a copy, with a recorder for its network."""
    if list(dict(module.named_children())) != ["network"]:
        return False
    numbers = torch.linspace(-20, 21, 24).sinh()  # of all sizes
    x, answer, heard = numbers.view(2, 3, 2, 2), numbers[:14].view(2, 7), []

    def record(given: Tensor) -> Tensor:
        heard.append(given)
        return answer.clone()

    double = copy.copy(module)
    double.__dict__["_modules"] = {"network": record}
    try:
        found = type(module).forward(double, x.clone())
        return len(heard) == 1 and torch.equal(heard[0], x) and torch.equal(found, answer)
    except Exception:  # whatever it is that such a module does, it is more than to pass on
        return False
