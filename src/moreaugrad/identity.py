"""What maps depend on, in JSON: weights, preprocessing, method and options; and digests of files and bytes."""

from __future__ import annotations

import ast
import math
import re
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from moreaugrad.data.images import MOST_PIXELS
from moreaugrad.files import first_line
from moreaugrad.methods.options import describe_options
from moreaugrad.models.classifier import CentreCrop

if TYPE_CHECKING:
    from moreaugrad.api import Explainer
    from moreaugrad.models.classifier import Classifier


def describe_explainer(explainer: Explainer) -> dict[str, Any]:
    """All that maps depend on beside the images: weights, preprocessing, method and options, also those not typed.

    Not the device, nor the versions of packages: they change roundings, and a run may go on elsewhere.
    """
    model, options = explainer.classifier, describe_options(explainer.method)
    options.pop("preset", None)  # one word for options that are here themselves
    if options.get("statistic") == "mean":  # the map that versions without statistics made of the same options
        options = {key: value for key, value in options.items() if key not in ("statistic", "tau")}
    weights = blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    view = repr(model.view) if isinstance(model.view, CentreCrop) else _describe_view(model)
    files = {key: digest_file(Path(value)) for key, value in options.items() if isinstance(value, str)}
    found = {"model": model.name, "layers": repr(model.network), "weights": weights.hexdigest(), "view": view}
    options |= {"share": getattr(explainer.method, "share", None)}
    return found | {"method": explainer.name, "options": options, "files": files}


def read_view(description: str) -> CentreCrop | None:
    """The view that `describe_explainer` tells of, without its model; None for a user's function."""
    if not description.startswith(f"{CentreCrop.__name__}("):  # a digest
        return None
    try:
        call: Any = ast.parse(re.sub(r"<Resampling\.\w+: (\d+)>", r"\1", description), mode="eval").body
        values = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        view = CentreCrop(**values | {"filter": Image.Resampling(values["filter"])})
        whole = all(math.prod(sides) <= MOST_PIXELS for sides in (view.size, view.box))  # a file can claim any size
        if not (whole and view.apply(Image.new("RGB", (8, 8)))[0].isfinite().all()):
            raise ValueError("no view of a network is like that")
    except Exception as error:  # whatever Python or Pillow makes of it
        raise ValueError(
            f"a view must be as jobs describe it, got {description!r:.80} ({first_line(error)}); restore it"
        ) from error
    return view


def _describe_view(model: Classifier) -> str:
    """A user's function by what it makes of a picture that is neither square nor even."""
    x, _ = model.view.apply(Image.radial_gradient("L").convert("RGB").resize((301, 203)))
    return digest_bytes(repr(x.shape).encode() + x.cpu().contiguous().numpy().tobytes())


def digest_file(path: Path) -> str | None:
    """Of the content of a file; None where there is none to read."""
    try:
        with path.open("rb") as handle:
            return file_digest(handle, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:
        return None


def digest_bytes(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
