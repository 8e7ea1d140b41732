"""What `explain` has to do: the images, and how each is told from all others. Heavy imports are made inside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moreaugrad.cli.results_folder import identify

if TYPE_CHECKING:
    from moreaugrad.api import Explainer


@dataclass(frozen=True, slots=True)
class Job:
    """One image to explain."""

    key: str  # its name
    source: Any  # what `read_image` takes
    file: str  # as it was typed
    target: int | None
    identity: str  # of the image and of everything that its map depends on


def make_jobs(paths: Sequence[Path], target: int | None, explainer: Explainer, out: Path) -> list[Job]:
    """A job for each file, once.

    A file is known by its content, so that a changed one is explained again and a copied or touched one is not, and
    by its place as seen from `out`, so that the two can be moved together.
    """
    from moreaugrad.data.images import unique_names

    found: dict[str, Job] = {}
    run = describe_run(explainer) | {"target": target}
    for key, path in zip(unique_names(paths), paths, strict=True):
        place = path.parent.resolve() / path.name
        with suppress(ValueError):  # Windows: on another drive
            place = Path(os.path.relpath(place, out.resolve()))
        identity = identify(run | {"file": place.as_posix(), "content": digest(path)})
        found.setdefault(identity, Job(key, path, str(path), target, identity))
    return list(found.values())


def describe_run(explainer: Explainer) -> dict[str, Any]:
    """All that maps depend on beside the images: weights, preprocessing, method and options, also those not typed.

    Not the device, nor the versions of packages: they change roundings, and a run may go on elsewhere.
    """
    import torch

    from moreaugrad.methods.options import describe_options
    from moreaugrad.models.classifier import CentreCrop

    model, options = explainer.classifier, describe_options(explainer.method)
    weights = blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    view = model.view if isinstance(model.view, CentreCrop) else (model.view.size, model.view.mean, model.view.std)
    files = {key: digest(Path(value)) for key, value in options.items() if isinstance(value, str)}
    found = {"model": model.name, "weights": weights.hexdigest(), "view": repr(view)}
    return found | {"method": explainer.name, "options": options, "files": files}


def digest(path: Path) -> str | None:
    """Of the content of a file; None where there is none to read."""
    try:
        with path.open("rb") as handle:
            return file_digest(handle, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:
        return None
