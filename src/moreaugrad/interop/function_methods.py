"""Any function that makes maps, as a method: `from_function`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from moreaugrad.interop.outside_methods import CountedNetwork, OutsideMethod, Rows, join_table, make_class
from moreaugrad.methods.base import Call, Method
from moreaugrad.model.inputs import report_target, take_target


class FunctionMethod(OutsideMethod):
    """Maps of a function from outside."""

    once = True

    @classmethod
    def get_name(cls) -> str:
        return cls.__name__

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score != "logit":
            raise ValueError(
                f"score must be 'logit' for {self.get_name()}, which reads the model's outputs by itself, "
                f"got {self.score!r}; leave it out"
            )

    def make_network(self, call: Call) -> CountedNetwork:
        if call.score.arguments:
            raise ValueError(
                f"additional_forward_args must be left out: {self.get_name()} takes the model, the inputs and the "
                "target alone; wrap the model in a function that holds them"
            )
        return CountedNetwork(self.forward_func)

    def make_maps(self, network: CountedNetwork, call: Call, rows: Rows) -> Any:
        x = call.x[rows]
        inputs = call.score.unpack(x)
        target = report_target(take_target(call.score.target, call.score.owners(call.x)[rows]), x)
        options = {each: getattr(self, each) for each in self.own_options}
        return type(self).maker(network.forward, inputs[0] if len(inputs) == 1 else inputs, target, **options)


def from_function(
    function: Callable[..., Any], *, name: str | None = None, random: bool = False, **options: Any
) -> type[Method]:
    """Makes a method of any function `function(model, x, target)` that returns maps.

    The method has Captum's calling convention, `explain`, chunks and progress as all others have. The function gets a
    copy of the model, so hooks may stay on it, and its random numbers are seeded and leave no trace.

    Args:
        function: takes a copy of the model, inputs (N, ...) and one class for each, and returns maps: (N, C, H, W),
            (N, 1, H, W) or (N, H, W), also smaller than the images; a tensor or an array. Its further parameters are
            options of the method.
        name: under which the method joins `METHODS`, so that the command line and studies know it; None: under none.
        random: whether another seed gives another map. The method then has an option `seed`, and takes images one by
            one.
        **options: other defaults of the function's options.

    Returns:
        A subclass of `Method`.

    Raises:
        TypeError: the function cannot be called with three arguments, or has no such option.

    Example:
        >>> def occluded_half(model, x, target, value=0.0):
        ...     left = x.clone()
        ...     left[..., : x.shape[-1] // 2] = value
        ...     fall = (model(x) - model(left)).gather(1, target[:, None]).view(-1, 1, 1, 1)
        ...     return fall * (left != x).any(1, keepdim=True)
        >>> mg.from_function(occluded_half, value=0.5)(net).attribute(x, target=3).shape
        torch.Size([2, 1, 16, 16])
    """
    if not callable(function):
        raise TypeError(f"function must be callable as function(model, x, target), got {function!r}")
    parameters = list(signature(function).parameters.values())
    plain = [each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    if len(plain) < 3:
        raise TypeError(f"function must take the model, the inputs and the target, got the parameters {parameters}")
    known = {each.name: each.default for each in parameters if each not in plain[:3]}
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        known |= dict.fromkeys(options, Parameter.empty)
    known = {key: known[key] for key in known if key not in ("args", "kwargs", "options")}
    title = getattr(function, "__name__", type(function).__name__)
    title = "function" if title == "<lambda>" else title
    made = make_class(FunctionMethod, title, function, known, options, random)
    made.make_class = staticmethod(from_function)
    return join_table(made, name)
