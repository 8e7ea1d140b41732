"""Weights for a network: from files, shipped with the package, random, or from a hub that may be out of reach.

Never unpickles code.
"""

from __future__ import annotations

import pickle
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from moreaugrad import limits
from moreaugrad.files import first_line, first_names

State = dict[str, Tensor]
Network = TypeVar("Network", bound=nn.Module)

WRAPPERS = ("state_dict", "model_state_dict", "model", "state_dict_ema", "model_ema", "net")
PREFIXES = ("module.", "_orig_mod.", "model.", "network.")
RANDOM = "random"


class WeightsUnavailableError(OSError):
    """Pretrained weights that are neither installed nor can be downloaded."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"the pretrained weights of {name!r} cannot be had ({why}); name a checkpoint file or 'random' as weights "
            "(--weights on the command line), or take the model 'efficientnet_lite0', whose weights are installed"
        )


def build_network(
    make: Callable[..., Network],
    weights: str | Path | None,
    labels: list[str] | None,
    options: Mapping[str, Callable[[str], Any]] | None = None,
) -> Network:
    """The network with random or file weights and as many classes as the file, or the labels, have.

    `options` are those that the metadata of the file may hold, each with the function that reads it.
    """
    if weights is None or weights == RANDOM:
        return make(num_classes=len(labels)) if labels else make()
    given = _read_notes(weights, options) if options else {}
    state = read_state(weights)
    if given:
        _check_notes(given, state, weights)
        make = partial(make, **given)
        with torch.device("meta"), _Undrawn():  # the notes may tell of a network that no memory holds
            check_fit(_make_fitting(make, state, labels), state, weights)
    network = _make_fitting(make, state, labels)
    load_state(network, state, weights)
    return network


class _Undrawn(TorchFunctionMode):
    """Leaves initial weights undrawn: where there is no memory for them, torch would load its compiler to do so."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **kwargs or {})


def _read_notes(weights: str | Path, options: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The options that the metadata of a file hold."""
    notes = read_metadata(weights)
    try:
        return {key: read(notes[key]) for key, read in options.items() if key in notes}
    except ValueError:
        *some, last = [key for key, read in options.items() if read is not str]
        wanted = f"{', '.join(some)} and {last}"
        raise ValueError(f"weights must say {wanted} in numbers, got {notes} in {str(weights)!r}") from None


def _check_notes(given: Mapping[str, Any], state: State, source: object) -> None:
    """Every width or depth shows in the tensors, so that none is larger than they are long or many."""
    most = max(len(state), *(side for tensor in state.values() for side in (*tensor.shape, 0)))
    for name, value in given.items():
        numbers = [each for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, int)]
        if max(numbers, default=0) > most:
            raise ValueError(
                f"weights must be those of the network that they tell of, got {name}={value!r:.80} in {str(source)!r}, "
                f"whose tensors reach to {most}; give the file as it was trained"
            )


def _make_fitting(make: Callable[..., Network], state: State, labels: list[str] | None) -> Network:
    """A network with as many classes as the last layer in the file, or as there are labels."""
    network = make(num_classes=len(labels)) if labels else make()
    wanted = network.state_dict()
    state = _strip_prefixes(state, set(wanted))
    name, tensor = list(wanted.items())[-1]  # the bias of the last layer: its length is that of classes
    bias, weight = state.get(name), state.get(f"{name.removesuffix('bias')}weight")
    if bias is None or bias.ndim != 1 or bias.shape == tensor.shape:
        return network
    # a file can claim more classes than it has weights for
    return network if weight is not None and len(weight) != len(bias) else make(num_classes=len(bias))


def load_weights(network: nn.Module, weights: str | Path | None) -> None:
    """Load a file into a network; None and "random" leave it as it was made."""
    if weights is not None and weights != RANDOM:
        load_state(network, read_state(weights), weights)


def shipped_weights(name: str, command: str) -> Path:
    """The file of weights that comes with the package; `command` trains it where it is absent."""
    path = Path(str(files("moreaugrad.models"))) / "weights" / f"{name}.safetensors"
    if not path.is_file():
        raise WeightsUnavailableError(name, f"this installation holds none; train them: {command}")
    return path


def read_state(path: str | Path) -> State:
    """The tensors of a .safetensors file or of a saved state dict, by name."""
    file = Path(path)
    limits.checkpoint(file)
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of archives that are no state: the error says so
                found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"weights must be plain tensors, got {str(path)!r}, which holds other objects, or is damaged; "
            "save it again with torch.save(model.state_dict(), FILE)"
        ) from None
    except Exception as error:
        raise _unreadable(path, error) from error
    return _unwrap(found, path)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a .safetensors file; empty for any other kind."""
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: object, error: Exception) -> ValueError:
    return ValueError(f"weights must be a readable checkpoint, got {str(path)!r}: {first_line(error)}")


def load_state(network: nn.Module, state: State, source: object) -> None:
    """Load every tensor, or raise with those that do not fit."""
    check_fit(network, state, source)
    network.load_state_dict(_strip_prefixes(state, set(network.state_dict())), strict=False)
    weights = {name for name, _ in network.named_parameters()}  # buffers may hold infinity, as masks do
    bad = [
        name
        for name, tensor in network.state_dict().items()
        if tensor.isnan().any() or (name in weights and not tensor.isfinite().all())
    ]
    if bad:
        raise ValueError(
            f"weights must be finite, got NaN or infinity in {len(bad)} tensors of {str(source)!r} "
            f"({first_names(bad)}); take a checkpoint from before its training failed"
        )


def check_fit(network: nn.Module, state: State, source: object) -> None:
    """Raise with the tensors that do not fit."""
    wanted = network.state_dict()
    state = _strip_prefixes(state, set(wanted))
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    extra = [name for name in state if name not in wanted]
    shapes = [
        f"{name} {tuple(state[name].shape)} for {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in state and state[name].shape != tensor.shape
    ]
    kinds = [
        f"{name} {state[name].dtype} for {tensor.dtype}"
        for name, tensor in wanted.items()
        if name in state and tensor.is_floating_point() and not state[name].is_floating_point()
    ]
    if missing or extra or shapes or kinds:
        parts = [("missing", missing), ("unexpected", extra), ("of another shape", shapes), ("of another kind", kinds)]
        misfits = "; ".join(f"{len(names)} {what} ({first_names(names)})" for what, names in parts if names)
        raise ValueError(
            f"weights must fit the model, got {str(source)!r} with tensors {misfits}; "
            "give the model that was trained, and its labels where their number differs"
        )


@contextmanager
def downloading(name: str, url: str | None = None, cached: bool = False) -> Iterator[None]:
    """Turn every failure of a download into one sentence, and fail at once where no host answers.

    Without a url from the Hugging Face hub, which then looks in its cache only: online it would retry each file for 23
    seconds.
    """
    from huggingface_hub import constants

    why = None if cached else _connection_error(url or constants.ENDPOINT)
    if why and url:
        raise WeightsUnavailableError(name, why)
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or why is not None
    try:
        yield
    except pickle.UnpicklingError:
        raise WeightsUnavailableError(name, "their file holds other objects than tensors, or is damaged") from None
    except Exception as error:
        raise WeightsUnavailableError(name, why or first_line(error)) from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _connection_error(url: str) -> str | None:
    """Why a host does not answer; None where it does, or where there is a proxy."""
    place = urlsplit(url)
    if getproxies():
        return None
    try:
        socket.create_connection((place.hostname, place.port or 443), timeout=4).close()
    except OSError as error:
        return f"no connection to {place.hostname}: {error.strerror or error}"
    return None


def _unwrap(found: Any, path: object) -> State:
    if isinstance(found, Mapping):
        found = next((found[key] for key in WRAPPERS if isinstance(found.get(key), Mapping)), found)
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()) or not found:
        raise ValueError(
            f"weights must be a state dict (names to tensors), got {type(found).__name__} in {str(path)!r}; "
            "save it with torch.save(model.state_dict(), FILE)"
        )
    if odd := [name for name, value in found.items() if not (isinstance(name, str) and _is_plain(value))]:
        raise ValueError(
            f"weights must be dense tensors with names, got {len(odd)} others in {str(path)!r} ({first_names(odd)}); "
            "save them as they are in a network on the CPU, not quantised, sparse or nested"
        )
    size = Path(str(path)).stat().st_size
    if large := [name for name, value in found.items() if value.numel() * value.element_size() > size]:
        raise ValueError(
            f"weights must be in the file, got {first_names(large)} in {str(path)!r}, which tell of more than its "
            f"{size} bytes; fetch it again"
        )
    return dict(found)


def _is_plain(tensor: Tensor) -> bool:
    """Whether all values of a tensor are there, one after the other."""
    whole = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    return whole and tensor.device.type == "cpu"


def _strip_prefixes(state: State, wanted: set[str]) -> State:
    """Remove the prefixes that wrappers of a network (data parallel, compiled, trainers) put before each name."""
    for prefix in PREFIXES * 2:
        if all(name.startswith(prefix) for name in state) and not any(name.startswith(prefix) for name in wanted):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
