"""Attributions of Captum as methods: `from_captum`, and the names captum/... of the table of methods."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, isabstract, signature
from typing import Any, ClassVar

import captum.attr
import torch
from captum.attr import Attribution, LayerAttribution
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.envelope.groups import label_groups
from moreaugrad.interop.outside_methods import CountedNetwork, OutsideMethod, Rows, copy_model, join_table, make_class
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.cam.layers import layer_name
from moreaugrad.model.inputs import Packing, take_argument, take_target
from moreaugrad.registry import Entry, unknown
from moreaugrad.threads import ignore_warnings
from moreaugrad.types import Images

PREFIX = "captum/"
DRAWS = ("Lime", "LimeBase", "KernelShap", "GradientShap", "LayerGradientShap", "ShapleyValueSampling")
MIXES = ("FeaturePermutation", "LayerFeaturePermutation")  # images of a batch, which for one image do nothing
CHUNKS = ("perturbations_per_eval", "internal_batch_size")  # rows of one call: the method's own internal_batch_size
NOT_OPTIONS = frozenset(
    {"inputs", "target", "additional_forward_args", "return_convergence_delta", "return_input_shape", "kwargs"}
    | {"show_progress", "verbose", "device_ids", "forward_func", "model"}
)
SILENT = r"(Setting (forward, )?backward hooks|Input Tensor \d+ did not|You are providing multiple inputs)"


class CaptumMethod(OutsideMethod):
    """Maps of one of Captum's attributions."""

    maker: ClassVar[Any]
    in_constructor: ClassVar[tuple[str, ...]] = ()
    in_call: ClassVar[tuple[str, ...]] = ()
    takes_module: ClassVar[bool] = False  # else any function will do, so the network is made fast first
    compares: ClassVar[bool] = False

    @property
    def once(self) -> bool:
        return self.takes_module

    @property
    def per_image(self) -> int:
        return 32 if self.single else 1  # rows run together: as many as `safe_rows` finds good

    @property
    def single(self) -> bool:
        return self.is_random or bool({*CHUNKS, "n_samples"} & {*self.in_call})

    @property
    def reference(self) -> str | None:
        return "zero" if self.compares else None

    def _pack_baselines(self, given: Any, inputs: tuple[Tensor, ...], packing: Packing) -> Images | None:
        own = getattr(self, "baselines", None) if self.compares else None
        return super()._pack_baselines(own if given is None else given, inputs, packing)

    def make_network(self, call: Call) -> CountedNetwork:
        if self.takes_module:
            return ScoredNetwork(copy_model(self._module()), call)
        count, engine = len(call.packing.shapes), call.score.engine
        return ScoredNetwork(lambda *given: engine(given[:count], given[count:]), call)

    def make_maps(self, network: CountedNetwork, call: Call, rows: Rows) -> Any:
        score, owners = call.score, call.score.owners(call.x)[rows]
        inputs = tuple(each.detach().clone().requires_grad_() for each in score.unpack(call.x[rows]))
        given = {name: getattr(self, name) for name in self.in_call if getattr(self, name) is not None}
        if call.baseline is not None:
            given["baselines"] = _alone(score.unpack(call.baseline[rows]))
        elif "baselines" in given:
            given["baselines"] = _references(given["baselines"], inputs)
        if "feature_mask" in given:
            given["feature_mask"] = _feature_mask(given["feature_mask"], call, rows)
        if score.arguments:
            extra = tuple(take_argument(each, owners, score.images) for each in score.arguments)
            given["additional_forward_args"] = extra
        given |= {"inputs": _alone(inputs), "target": take_target(score.target, owners)}
        chunks = [name for name in CHUNKS if name in self.in_call and name not in given]
        while True:
            try:
                return self._attribute(network, given | dict.fromkeys(chunks, score.engine.rows))
            except torch.OutOfMemoryError as error:
                if not chunks:
                    raise
                score.engine.halve_rows(score.engine.rows, error)

    def _attribute(self, network: CountedNetwork, given: dict[str, Any]) -> Any:
        """What Captum says, without its advice on hooks, which only a copy has."""
        made = self.maker(network.forward, **self._constructor_options(network.forward))
        with ignore_warnings(UserWarning, SILENT):
            try:
                found = made.attribute(**given)
            except Exception as error:
                if isinstance(error, torch.OutOfMemoryError) or not _raised_in_captum(error):
                    raise
                raise ValueError(f"Captum's {self.get_name()} refuses its options or the model: {error}") from error
        of_layer = isinstance(made, LayerAttribution) and isinstance(found, Tensor) and found.ndim == 4
        return found.sum(1, keepdim=True) if of_layer else found

    def _constructor_options(self, scores: Any) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.in_constructor}
        if "layer" in found:
            found["layer"] = scores.network.get_submodule(layer_name(self._module(), found["layer"]))
        return {name: value for name, value in found.items() if value is not None}

    def _module(self) -> nn.Module:
        found = getattr(self.forward_func, "_orig_mod", self.forward_func)
        if not isinstance(found, nn.Module):
            raise TypeError(
                f"Captum's {self.get_name()} needs a torch.nn.Module, whose layers it hooks, got "
                f"{type(found).__name__}; pass the module itself"
            )
        return found


class ScoredNetwork(CountedNetwork):
    """The network as Captum sees it: a module that returns the scores that are explained."""

    def __init__(self, network: Any, call: Call) -> None:
        self.rows = 0
        self.forward: Any = _Scores(self, network, call)


class _Scores(nn.Module):
    """Runs the network and returns scores (N, classes); (N,) where the model has one output."""

    def __init__(self, counter: CountedNetwork, network: Any, call: Call) -> None:
        super().__init__()
        self.counter, self.network, self.call, self.training = counter, network, call, False

    def forward(self, *given: Any) -> Tensor:
        score = self.call.score
        output = score.read(self.network(*given), len(given[0]))
        if not self.counter.rows:
            validate.target_fits(score.target, tuple(output.shape), score.kind)
        self.counter.rows += len(given[0])
        return output.reshape(len(output)) if score.target is None else score.scores(output)


def from_captum(
    attribution: type[Attribution], *, name: str | None = None, random: bool | None = None, **options: Any
) -> type[Method]:
    """Makes a method of one of Captum's attributions: Occlusion, Lime, KernelShap, GuidedBackprop, LRP, ...

    The method has the calling convention, results, chunks and progress of all methods here. It leaves nothing behind
    in the model, also where Captum would, and random attributions follow `seed` and give an image the same map in any
    batch. `feature_mask` may also be "superpixels", "channels" or a number of cells per side. Attributions of a layer
    are summed over its channels and enlarged to the images.

    On the command line, `--method captum/Occlusion --set sliding_window_shapes=[3,8,8]` does the same.

    Args:
        attribution: a class of `captum.attr` whose `attribute` takes a target, or your own in its manner.
        name: under which the method joins `METHODS`; None: under none.
        random: whether another seed gives another map; None: as known of Captum's own.
        **options: defaults of the attribution's own options, of its constructor or of its `attribute`. The others keep
            Captum's; each is an option of the method. `layer` may be a name.

    Returns:
        A subclass of `Method`. Its results count as `gradients` the rows that went through the network.

    Raises:
        TypeError: the attribution does not explain a class by images, or has no such option.

    Example:
        >>> import captum.attr
        >>> Occlusion = mg.from_captum(captum.attr.Occlusion, sliding_window_shapes=(3, 4, 4), strides=(3, 4, 4))
        >>> found = Occlusion(net).explain(x)
        >>> found.map.shape, found.gradients.tolist()
        (torch.Size([2, 3, 16, 16]), [17, 17])
    """
    first, constructor, call = _read_signatures(attribution)
    known = {each.name: each.default for each in (*constructor, *call) if each.name not in NOT_OPTIONS}
    known |= {key: None for key in CHUNKS if key in known}
    drawn = attribution.__name__ in DRAWS if random is None else random
    made = make_class(CaptumMethod, attribution.__name__, attribution, known, options, drawn)
    made.in_constructor = tuple(each.name for each in constructor if each.name in known)
    made.in_call = tuple(each.name for each in call if each.name in known)
    made.takes_module = first == "model" or "layer" in known
    made.compares = known.get("baselines", Parameter.empty) is None  # a distribution of baselines has no default
    made.make_class, made.__doc__ = staticmethod(from_captum), f"{attribution.__name__} of Captum."
    return join_table(made, name)


@cache
def find_entry(name: str) -> Entry:
    """The entry of captum/CLASS, which is in no list."""
    kind = getattr(captum.attr, name.removeprefix(PREFIX), None)
    try:
        made = from_captum(kind)  # type: ignore[arg-type]
    except TypeError:
        raise unknown("method", name, [PREFIX + each for each in captum.attr.__all__ if _usable(each)]) from None
    flags = frozenset({"outside"} | (set() if made.is_random else {"deterministic"}))
    return Entry(f"captum.attr:{kind.__name__}", made.__doc__ or "", flags, made)  # type: ignore[union-attr]


def _usable(name: str) -> bool:
    try:
        _read_signatures(getattr(captum.attr, name))
    except TypeError:
        return False
    return True


def _read_signatures(attribution: Any) -> tuple[str, list[Parameter], list[Parameter]]:
    """The name of the constructor's first argument, and the parameters of constructor and `attribute`."""
    ways = "a class of captum.attr that explains a class, such as captum.attr.Occlusion"
    if not isinstance(attribution, type) or not issubclass(attribution, Attribution) or isabstract(attribution):
        raise TypeError(f"attribution must be {ways}, got {attribution!r}; for a function use mg.from_function")
    if issubclass(attribution, Method):
        raise TypeError(f"attribution must be {ways}, got {attribution.__name__}, which is a method already")
    run = getattr(attribution, "attribute", None)
    first, *constructor = list(signature(attribution.__init__).parameters.values())[1:]
    call = list(signature(run).parameters.values())[1:] if callable(run) else []
    names = [each.name for each in call]
    if first.name not in ("forward_func", "model") or not {"inputs", "target"} <= set(names):
        raise TypeError(
            f"attribution must be {ways}, got {attribution.__name__}, which needs more than a model, inputs and a "
            "target; use it inside a function for mg.from_function"
        )
    if "neuron_selector" in names or attribution.__name__ in MIXES:
        what = "a neuron" if "neuron_selector" in names else "the images of a batch by each other"
        raise TypeError(f"attribution must be {ways}, got {attribution.__name__}, which explains {what}")
    return first.name, constructor, call


def _raised_in_captum(error: BaseException) -> bool:
    """Whether Captum could not do with what it was given, rather than the network."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__")).startswith("captum.")


def _alone(parts: tuple[Tensor, ...]) -> Any:
    """One input as a tensor, several as a tuple, as Captum takes them."""
    return parts[0] if len(parts) == 1 else parts


def _references(given: Any, inputs: tuple[Tensor, ...]) -> Any:
    """A distribution of baselines on the device of the inputs; a number stands for one constant image."""
    parts = given if isinstance(given, tuple) else (given,) * len(inputs)
    found = tuple(
        part.detach().to(x.device, x.dtype) if isinstance(part, Tensor) else torch.full_like(x[:1].detach(), part)
        for part, x in zip(parts, inputs, strict=True)
    )
    return _alone(found)


def _feature_mask(given: Any, call: Call, rows: Rows) -> Any:
    """Captum's form: labels that broadcast to the inputs. A word or a number of cells names a partition of images."""
    if isinstance(given, str | int):
        x = call.x[rows]
        labels, _ = label_groups(given, x)
        return labels.view(-1, *x.shape[1:])
    if isinstance(given, tuple) and all(isinstance(each, Tensor) for each in given):
        return tuple(_feature_mask(each, call, rows) for each in given)
    mask = call.part(torch.as_tensor(given, device=call.x.device))
    return mask[rows] if call.images > 1 and len(mask) == len(call.x) else mask
