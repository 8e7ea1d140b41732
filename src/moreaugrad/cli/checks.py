"""What can be told of a command before its model is loaded. Heavy imports are made inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moreaugrad.data.sources import ImageSource, as_path, find_fault
from moreaugrad.methods import METHODS

if TYPE_CHECKING:
    from moreaugrad.models.classifier import Classifier


# the flag of the methods that take an option: the table tells without importing torch
FLAGS = {"groups": "groups", "layer": "layer", "network": "trained", "budget": "slow"}
FLAGS |= {each: each for each in ("statistic", "preset")}
FLAGS |= dict.fromkeys(("eta", "sparsity", "prior", "rho", "relative_error"), "solver")


def choose_method(name: str | None, options: Mapping[str, Any]) -> str:
    """The method by name; the default is one that takes the options. An unknown name or option raises."""
    chosen = name or ("moreau" if "prior" in options else "sparse_moreau")
    entry = METHODS[chosen]
    # members from outside tell by their class, and a prior that is named has options of its own
    unknown = entry.member is not None or ("prior" in options and "solver" in entry.flags)
    for option in () if unknown else options:
        flag = FLAGS.get(option)
        if flag is not None and flag not in entry.flags:
            others = ", ".join(other for other, each in METHODS.items() if flag in each.flags)
            raise ValueError(f"{type_name(option)} must be left out with {chosen}; it is an option of {others}")
    return chosen


def type_name(option: str) -> str:
    """An option of a method as it is typed."""
    names = {"network": "--mask-network", "budget": "--quality or --budget"}
    return names.get(option, f"--{option.replace('_', '-')}")


def check_method(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the method does not take, or not with these values, before any model is loaded."""
    from torch import nn

    from moreaugrad.methods.options import make_method, with_default_preset

    make_method(name, nn.Identity(), with_default_preset(name, options))


def class_number(text: str | None, classifier: Classifier, name: str = "target") -> int | None:
    """A class by number or by name; None is the predicted one."""
    from moreaugrad.models.classes import find_class

    return None if text is None else find_class(text, classifier.labels, name)


def open_image(text: str) -> Path:
    """The one image of a command; one that cannot be there raises."""
    path = as_path(text)
    refuse_missing([path])
    return path


def refuse_missing(sources: Sequence[ImageSource]) -> None:
    """Raise where no source can be read, before anything heavy is loaded; one bad among others is reported later."""
    for source in sources:
        if (fault := find_fault(source)) is None:
            return
    raise ValueError(fault)


def make_output(out: Path, files: Iterable[str] = (), images: Sequence[Path] = ()) -> None:
    """Make the folder of the results; refuse to write over an image that is to be read."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, got the file {str(out)!r}; name another")
    sources = {image.resolve() for image in images}
    for name in files:
        if (out / name).resolve() in sources:
            raise ValueError(
                f"--out must not lie where results would replace an image, got {str(out)!r}, where {name} is one "
                "of the images; name another folder"
            )
    from moreaugrad.files import make_folder

    make_folder(out)
