"""Weights for a network: from files, shipped with the package, random, or from a hub that may be out of reach.

Never unpickles code.
"""

from __future__ import annotations

import pickle
import socket
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
    notes = read_metadata(weights) if options else {}
    try:
        make = partial(make, **{key: read(notes[key]) for key, read in (options or {}).items() if key in notes})
    except ValueError:
        *some, last = [key for key, read in (options or {}).items() if read is not str]
        wanted = f"{', '.join(some)} and {last}"
        raise ValueError(f"weights must say {wanted} in numbers, got {notes} in {str(weights)!r}") from None
    state = read_state(weights)
    network = make(num_classes=len(labels)) if labels else make()
    name, tensor = list(network.state_dict().items())[-1]  # the bias of the last layer: its length is that of classes
    bias = _strip_prefixes(state, set(network.state_dict())).get(name)
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
    limits.checkpoint(file)
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
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: object, error: Exception) -> ValueError:
    return ValueError(f"weights must be a readable checkpoint, got {str(path)!r}: {first_line(error)}")


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
        misfits = "; ".join(f"{len(names)} {what} ({first_names(names)})" for what, names in parts if names)
        raise ValueError(
            f"weights must fit the model, got {str(source)!r} with tensors {misfits}; "
            "give the model that was trained, and its labels where their number differs"
        )
    network.load_state_dict(state, strict=False)


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
    return dict(found)


def _strip_prefixes(state: State, wanted: set[str]) -> State:
    """Remove the prefixes that wrappers of a network (data parallel, compiled, trainers) put before each name."""
    for prefix in PREFIXES * 2:
        if all(name.startswith(prefix) for name in state) and not any(name.startswith(prefix) for name in wanted):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
