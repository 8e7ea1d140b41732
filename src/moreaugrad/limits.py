"""What plain values may be: numbers, shares and words. Imports no torch, so the command line refuses others at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from moreaugrad.registry import unknown

SCORES = ("logit", "prob", "logprob")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
GROUPS = ("superpixels", "channels")  # beside a number of cells per side
MOST = 2**63 - 1  # whole numbers that tensors hold
LARGEST = 3.4028234663852886e38  # of float32, in which networks and optimisers work

_WAYS = {  # out of a number that does not fit
    "rho": "; 1.0 is the usual choice, and 0 takes all gradients at the input",
    "eta": "; 0 means no prior, and sparsity= chooses eta for you",
    "noise_level": "; 0.1 is the usual choice, and smoothing=None means no noise",
    "sigma": "; smoothing=None means no noise",
}


def plain_number(value: Any) -> Any:
    """A number of NumPy as Python's own, which no sum can make overflow; anything else as it is."""
    if isinstance(value, Real) and hasattr(value, "item"):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def take_plain_numbers(made: Any) -> None:
    """The same for the fields of a frozen dataclass, which calls this when it is made."""
    for each in fields(made):
        object.__setattr__(made, each.name, plain_number(getattr(made, each.name)))


def is_finite(value: float) -> bool:
    """Whether a network can work with the number: float32 holds it."""
    return -LARGEST <= value <= LARGEST


def positive(name: str, value: float) -> None:
    number(name, value)
    if not (value > 0 and is_finite(value)):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}{_way_out(name, value)}")


def not_negative(name: str, value: float) -> None:
    number(name, value)
    if not (value >= 0 and is_finite(value)):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}{_way_out(name, value)}")


def _way_out(name: str, value: float) -> str:
    return f"; float32 ends at {LARGEST:.3g}" if value > LARGEST else _WAYS.get(name, "")


def at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if int(value) > MOST:
        raise ValueError(f"{name} must be at most {MOST}, the largest number that tensors count with, got more")


def number(name: str, value: object) -> None:
    known = isinstance(value, int | float) or (isinstance(value, Real) and hasattr(value, "item"))  # no fractions
    if isinstance(value, bool) or not known:
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")


def share(name: str, value: float) -> None:
    number(name, value)
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], the share of the map to keep, got {value!r}")


def voters(name: str, value: float) -> None:
    """The share of the entries that a noisy copy votes for."""
    number(name, value)
    if not 0 < value < 1:
        raise ValueError(
            f"{name} must be in (0, 1), the share of the entries that a copy votes for, got {value!r}; 0.1 is usual"
        )


def listed(name: str, given: Any) -> Sequence[Any]:
    """One value as a list of one; a list, which asks for a path of maps, as it is."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [given]
    if not given or None in given:
        raise ValueError(f"{name} must be a number or a list of at least one number, got {given!r}")
    return given


def steps(total: int | None, samples: int) -> int:
    """How many steps a budget pays for; a solver without one has 800."""
    total = 800 if total is None else total
    at_least("budget", total, 1)
    if total < samples:
        raise ValueError(
            f"budget must be at least samples, got budget={total} and samples={samples}: "
            "one step spends `samples` gradients; raise budget or lower samples"
        )
    return total // samples


def one_of(name: str, value: object, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:  # other objects may not even be comparable
        raise unknown(name, value, list(known))


def one_weight(eta: object, sparsity: object) -> None:
    """A weight of the prior, or a share to keep, but not both."""
    if eta is not None and sparsity is not None:
        raise ValueError(
            f"eta and sparsity exclude each other, got eta={eta} and sparsity={sparsity}: "
            "sparsity chooses eta for each image, so give one of them"
        )


def groups(name: str, value: Any) -> None:
    """A number of cells per side, or a word."""
    if isinstance(value, str):
        one_of(name, value, GROUPS)
    else:
        at_least(name, value, 1)


def view(size: Any, mean: Any, std: Any) -> None:
    """The side of a network's input, or height and width, in pixels; mean and std per channel, of values in [0, 1]."""
    sides = list(size) if isinstance(size, Sequence) else [size]
    if len(sides) > 2:
        raise ValueError(f"size must be one number, or height and width, got {size!r}")
    for side in sides if size is not None else ():
        at_least("size", side, 1)
    for name, values in (("mean", mean), ("std", std)):
        if values is not None and (not isinstance(values, Sequence) or len(values) not in (1, 3)):
            raise ValueError(f"{name} must be three numbers, one per channel, or one for grey images, got {values!r}")
    for value in mean or ():
        number("mean", value)
        if not 0 <= value <= 1:
            raise ValueError(f"mean must be on the scale 0..1 of pixels, got {value!r}; divide 8-bit values by 255")
    for value in std or ():
        positive("std", value)
    if mean is not None and std is not None and len(mean) != len(std):
        raise ValueError(f"mean and std must have as many values, got {len(mean)} and {len(std)}")


def path(name: str, given: object) -> None:
    """Something that can name a file or a folder."""
    if not isinstance(given, str | PathLike):
        raise TypeError(f"{name} must be a path, got {given!r} of type {type(given).__name__}")
    if not str(given) or "\0" in str(given):
        raise ValueError(f"{name} must be the name of a file or folder, got {str(given)!r}")


def checkpoint(path: str | Path) -> None:
    if not Path(path).is_file():
        raise ValueError(f"weights must be a checkpoint file or 'random', got {str(path)!r}, which is no file")


def text_file(name: str, path: str | Path) -> None:
    if not Path(path).exists():
        raise ValueError(f"{name} must be a readable text file, got {str(path)!r}: nothing there")


_OPTIONS: Mapping[str, Callable[[str, Any], None]] = {
    "rho": not_negative,
    "eta": not_negative,
    "sparsity": share,
    "groups": groups,
    "noise_level": not_negative,
    "tau": voters,
    "samples": partial(at_least, least=1),
    "budget": partial(at_least, least=1),
    "relative_error": positive,
    "seed": partial(at_least, least=0),
    "score": partial(one_of, known=SCORES),
    "precision": partial(one_of, known=PRECISIONS),
}


def options(given: Mapping[str, Any]) -> None:
    """Refuse what no method can take for the options that many share."""
    for name, value in given.items():
        if name in _OPTIONS:
            _OPTIONS[name](name, value)
    one_weight(given.get("eta"), given.get("sparsity"))
