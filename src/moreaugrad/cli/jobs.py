"""What `explain` has to do: the images, and how each is told from all others. Heavy imports are made inside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moreaugrad.cli.results_folder import identify
from moreaugrad.data.sources import STDIN, Frame, ImageSource, printable, unique_names

if TYPE_CHECKING:
    from moreaugrad.api import Explainer
    from moreaugrad.models.classes import Wanted
    from moreaugrad.models.classifier import Classifier


@dataclass(frozen=True, slots=True)
class Job:
    """One image to explain."""

    key: str  # its name
    source: Any  # what `read_image` takes
    file: str  # as it was typed
    target: Wanted
    identity: str  # of the image and of everything that its map depends on
    facts: dict[str, int] = field(default_factory=dict)  # what its line says of it: frame, rank


def make_jobs(sources: Sequence[ImageSource], targets: Sequence[Wanted], explainer: Explainer, out: Path) -> list[Job]:
    """A job for each picture and target, once.

    A file is known by its content, so that a changed one is explained again and a copied or touched one is not, and
    by its place as seen from `out`, so that the two can be moved together.
    """
    from moreaugrad.data.images import read_image
    from moreaugrad.models.classes import Ranked

    found: dict[str, Job] = {}
    run = describe_run(explainer)
    digests: dict[Path, str | None] = {}
    for key, source in zip(unique_names(sources), sources, strict=True):
        path, frame = (source.path, {"frame": source.index}) if isinstance(source, Frame) else (source, {})
        picture = read_image(STDIN) if path == STDIN else None  # it can be read only once
        if path not in digests:
            digests[path] = (
                digest(path) if picture is None else digest_bytes(repr(picture.size).encode() + picture.tobytes())
            )
        about = run | {"file": place_of(path, out), "content": digests[path]} | frame
        for target in targets:
            rank = {"rank": target.rank} if isinstance(target, Ranked) else {}
            identity = identify(about | {"target": None if rank else target} | rank)
            name = f"{key}_top{rank['rank']}" if rank else key
            job = Job(name, picture or source, printable(str(path)), target, identity, frame | rank)
            found.setdefault(identity, job)
    return list(found.values())


def place_of(path: Path, out: Path) -> str:
    """Where a file is, as seen from the results."""
    place = path.parent.resolve() / path.name
    with suppress(ValueError):  # Windows: on another drive
        place = Path(os.path.relpath(place, out.resolve()))
    return place.as_posix()


def describe_run(explainer: Explainer) -> dict[str, Any]:
    """All that maps depend on beside the images: weights, preprocessing, method and options, also those not typed.

    Not the device, nor the versions of packages: they change roundings, and a run may go on elsewhere.
    """
    import torch

    from moreaugrad.methods.options import describe_options
    from moreaugrad.models.classifier import CentreCrop

    model, options = explainer.classifier, describe_options(explainer.method)
    options.pop("preset", None)  # one word for options that are here themselves
    if options.get("statistic") == "mean":  # the map that versions without statistics made of the same options
        options = {key: value for key, value in options.items() if key not in ("statistic", "tau")}
    weights = blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    view = repr(model.view) if isinstance(model.view, CentreCrop) else _describe_view(model)
    files = {key: digest(Path(value)) for key, value in options.items() if isinstance(value, str)}
    found = {"model": model.name, "layers": repr(model.network), "weights": weights.hexdigest(), "view": view}
    options |= {"share": getattr(explainer.method, "share", None)}
    return found | {"method": explainer.name, "options": options, "files": files}


def _describe_view(model: Classifier) -> str:
    """A user's function by what it makes of a picture that is neither square nor even."""
    from PIL import Image

    x, _ = model.view.apply(Image.radial_gradient("L").convert("RGB").resize((301, 203)))
    return digest_bytes(repr(x.shape).encode() + x.cpu().contiguous().numpy().tobytes())


def digest(path: Path) -> str | None:
    """Of the content of a file; None where there is none to read."""
    try:
        with path.open("rb") as handle:
            return file_digest(handle, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:
        return None


def digest_bytes(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
