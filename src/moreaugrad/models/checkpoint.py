"""Weights for a network: from files, shipped with the package, random, or from a hub that may be out of reach.

Never unpickles code.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
Network = TypeVar("Network", bound=nn.Module)

WRAPPERS = ("state_dict", "model_state_dict", "model", "state_dict_ema", "model_ema", "net")
PREFIXES = ("module.", "_orig_mod.", "model.", "network.")
RANDOM = "random"


class WeightsUnavailableError(OSError):
    """Pretrained weights that are neither installed nor can be downloaded."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"the pretrained weights of {name!r} cannot be had ({why}); give a local checkpoint with weights=FILE, "
            f"or weights='random', or take model 'efficientnet_lite0', whose weights are installed"
        )


def build_network(make: Callable[..., Network], weights: str | Path | None, labels: list[str] | None) -> Network:
    """The network with random or file weights and as many classes as the file, or the labels, have."""
    state = None if weights is None or weights == RANDOM else read_state(weights)
    network = make(num_classes=len(labels)) if labels else make()
    if state is None:
        return network
    last, tensor = list(network.state_dict().items())[-1]  # the bias of the last layer: its length is that of classes
    bias = _strip_prefixes(state, set(network.state_dict())).get(last)
    if bias is not None and bias.ndim == 1 and bias.shape != tensor.shape:
        network = make(num_classes=len(bias))
    load_state(network, state, weights)
    return network


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
    if not file.is_file():
        raise ValueError(f"weights must be a checkpoint file or 'random', got {str(path)!r}, which is no file")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"weights must be plain tensors, got {str(path)!r}, which holds other objects, or is damaged; "
            "save it again with torch.save(model.state_dict(), FILE)"
        ) from None
    except Exception as error:
        raise ValueError(f"weights must be a readable checkpoint, got {str(path)!r}: {_first_line(error)}") from error
    return _unwrap(found, path)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a .safetensors file; empty for any other kind."""
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise ValueError(f"weights must be a readable checkpoint, got {str(path)!r}: {_first_line(error)}") from error


def read_options(weights: str | Path | None, kinds: Mapping[str, Callable[[str], Any]], wanted: str) -> dict[str, Any]:
    """The options of the network that a file was made for, where its metadata hold them."""
    notes = {} if weights is None or weights == RANDOM else read_metadata(weights)
    try:
        return {key: kind(notes[key]) for key, kind in kinds.items() if key in notes}
    except ValueError:
        raise ValueError(f"weights must say {wanted} in numbers, got {notes} in {str(weights)!r}") from None


def load_state(network: nn.Module, state: State, source: object) -> None:
    """Load every tensor, or raise with those that do not fit."""
    wanted = network.state_dict()
    state = _strip_prefixes(state, set(wanted))
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    extra = [name for name in state if name not in wanted]
    shapes = [
        f"{name} {tuple(state[name].shape)} for {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if missing or extra or shapes:
        parts = [("missing", missing), ("unexpected", extra), ("of another shape", shapes)]
        misfits = "; ".join(f"{len(names)} {what} ({_first_names(names)})" for what, names in parts if names)
        raise ValueError(
            f"weights must fit the model, got {str(source)!r} with tensors {misfits}; "
            "give the model that was trained, and its labels where their number differs"
        )
    network.load_state_dict(state, strict=False)


@contextmanager
def downloading(name: str, url: str, cached: bool = False) -> Iterator[None]:
    """Turn every failure of a download into one sentence, and fail at once where no host answers."""
    why = None if cached else connection_error(url)
    with _hub_offline() if why else nullcontext():
        try:
            yield
        except Exception as error:
            raise WeightsUnavailableError(name, why or _first_line(error)) from error


def hub_url() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def connection_error(url: str) -> str | None:
    """Why a host does not answer; None where it does, or where there is a proxy."""
    place = urlsplit(url)
    if getproxies():
        return None
    try:
        socket.create_connection((place.hostname, place.port or 443), timeout=4).close()
    except OSError as error:
        return f"no connection to {place.hostname}: {error.strerror or error}"
    return None


@contextmanager
def _hub_offline() -> Iterator[None]:
    """Let the Hugging Face hub look in its cache only; online it would retry each file for 23 seconds."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _unwrap(found: Any, path: object) -> State:
    for key in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()) or not found:
        raise ValueError(
            f"weights must be a state dict (names to tensors), got {type(found).__name__} in {str(path)!r}; "
            "save it with torch.save(model.state_dict(), FILE)"
        )
    return dict(found)


def _strip_prefixes(state: State, wanted: set[str]) -> State:
    """Remove the prefixes that wrappers of a network (data parallel, compiled, trainers) put before each name."""
    for prefix in PREFIXES * 2:
        if all(name.startswith(prefix) for name in state) and not any(name.startswith(prefix) for name in wanted):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
