"""What the methods that compare an input with a baseline share, Captum's order of arguments among it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from moreaugrad import validate
from moreaugrad.methods.base import Method
from moreaugrad.registry import unknown
from moreaugrad.types import Target

NAMED = ("black", "zero")


@dataclass(frozen=True, eq=False)
class BaselineMethod(Method):
    """A method that shares out the change of the score between a baseline and the input."""

    baseline: str | None = field(default="black", kw_only=True)
    multiply_by_inputs: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline is not None and not isinstance(self.baseline, str):
            raise TypeError(
                f"baseline must be one of {list(NAMED)}, got {type(self.baseline).__name__}; "
                "give a tensor with the call: attribute(x, target=target, baselines=tensor)"
            )
        if self.baseline not in (None, *NAMED):
            raise unknown("baseline", self.baseline, list(NAMED))
        validate.flag("multiply_by_inputs", self.multiply_by_inputs)

    @property
    def reference(self) -> str:
        return self.baseline or "zero"

    def has_convergence_delta(self) -> bool:
        return True

    def _attribute(self, inputs: Any, baselines: Any, target: Target, arguments: Any, **options: Any) -> Any:
        """Captum's order of arguments, in which baselines come before the target, brought to that of other methods."""
        try:
            return Method.attribute(self, inputs, target, arguments, baselines=baselines, **options)
        except (TypeError, ValueError) as error:
            if target is None and _looks_like_target(baselines):
                raise type(error)(
                    f"{error}. The second argument of {self.get_name()}.attribute is baselines, as in Captum, "
                    f"got {baselines!r}; write target={baselines!r} to explain a class"
                ) from error
            raise


def _looks_like_target(baselines: object) -> bool:
    """Whether it names classes: a whole number, a list of them, or a tensor of integers."""
    if isinstance(baselines, Tensor):
        return not baselines.is_floating_point() and not baselines.is_complex()
    listed = baselines if isinstance(baselines, list) else [baselines]
    return all(isinstance(each, int) and not isinstance(each, bool) for each in listed)
