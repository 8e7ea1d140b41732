"""The networks of the menu, and what people may ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image

from moreaugrad.api import Explainer
from moreaugrad.app.refusal import Refusal
from moreaugrad.methods import METHODS, PRESETS, QUALITY
from moreaugrad.methods.options import option_names, takes_option
from moreaugrad.model import STATISTICS
from moreaugrad.models.classifier import Classifier

DEFAULT_METHOD = "sparse_moreau"
OPTIONS = ("preset", "quality", "sparsity", "noise_level", "statistic", "rho", "groups", "seed")
MOST_CLASSES_SHOWN = 5
MOST_CELLS = 64


@dataclass(frozen=True)
class Menu:
    """Classifiers by the names that the page shows; the first is the default.

    Args:
        classifiers: the networks.
        loaded: what each was loaded with beside its name, as `load_model` takes it, for those who repeat a map.
    """

    classifiers: Mapping[str, Classifier]
    loaded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outputs: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        # counted once: later on the solver's thread alone may ask a network
        object.__setattr__(self, "outputs", {name: count_outputs(each) for name, each in self.classifiers.items()})

    def __getitem__(self, name: object) -> Classifier:
        """The one of this name; None: the default."""
        if name is None:
            return next(iter(self.classifiers.values()))
        if not isinstance(name, str) or name not in self.classifiers:
            raise Refusal(422, f"model must be one of {list(self.classifiers)}, got {name!r}"[:300])
        return self.classifiers[name]

    def name_of(self, name: object) -> str:
        """The name itself, or that of the default."""
        _ = self[name]
        return next(iter(self.classifiers)) if name is None else str(name)

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "classes": self.outputs[name],
                "labelled": each.labels is not None,
                "size": list(each.size),
            }
            for name, each in self.classifiers.items()
        ]


def count_outputs(classifier: Classifier) -> int:
    """How many scores the network gives."""
    grey = Image.new("RGB", classifier.size[::-1], "grey")
    with torch.no_grad():
        return int(classifier(classifier.preprocess(grey)[None]).flatten(1).shape[1])


def describe_methods() -> list[dict[str, Any]]:
    """What the page offers: all methods that need no file of their own, the default first."""
    names = sorted((name for name, entry in METHODS.items() if "trained" not in entry.flags), key=_by_default)
    return [
        {
            "name": name,
            "summary": METHODS[name].summary,
            "options": method_options(name),
            "sparse": "sparse" in METHODS[name].flags,
            "groups": "groups" in METHODS[name].flags,
            "signed": "signed" in METHODS[name].flags,
            "slow": "slow" in METHODS[name].flags and "solver" not in METHODS[name].flags,
            "attackable": "differentiable" in METHODS[name].flags,
            "certifiable": False,
        }
        for name in names
    ]


def method_options(name: str) -> list[str]:
    """The options of the page that a method takes."""
    known = set(option_names(name))
    found = [each for each in OPTIONS if each in known and takes_option(name, each, {})]
    return (["quality"] if known & {"budget", "samples"} else []) + found


def read_options(method: object, given: object) -> tuple[str, dict[str, Any]]:
    """A method and its flat options, from what a browser sent; anything else is refused."""
    names = [each["name"] for each in describe_methods()]
    if not isinstance(method, str) or method not in names:
        raise Refusal(422, f"method must be one of {names}, got {method!r}"[:500])
    if not isinstance(given, Mapping):
        raise Refusal(422, f"options must be an object, got {given!r}"[:300])
    known = method_options(method)
    for key, value in given.items():
        if key not in known:
            raise Refusal(422, f"options of {method} may be {', '.join(known)}, got {key!r}"[:300])
        _check_option(key, value)
    found = dict(given)
    if (quality := found.pop("quality", None)) is not None:
        found["budget" if "budget" in option_names(method) else "samples"] = QUALITY[quality]
    return method, found


def check_explainer(classifier: Classifier, method: str, options: Mapping[str, Any]) -> Explainer:
    """What will do it; options that do not fit are refused."""
    try:
        return Explainer(classifier, method, options)
    except (ValueError, TypeError) as error:
        raise Refusal(422, " ".join(str(error).split())) from None


def rank(classifier: Classifier, x: torch.Tensor) -> list[dict[str, Any]]:
    """The classes that the network gives an input (1, C, H, W), most likely first."""
    with torch.no_grad():
        scores = classifier(x).flatten(1)[0].float()
    if len(scores) == 1:
        return [{"target": 0, "label": classifier.label(0), "probability": None}]
    values, order = scores.softmax(0).topk(min(MOST_CLASSES_SHOWN, len(scores)))
    return [
        {"target": int(each), "label": classifier.label(int(each)), "probability": round(float(value), 6)}
        for value, each in zip(values, order, strict=True)
    ]


def check_number(name: str, value: object, low: float, high: float, whole: bool = False) -> Any:
    """A finite number in a range; anything else is refused."""
    kind: Any = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:  # no NaN is in a range
        word = "a whole number" if whole else "a number"
        raise Refusal(422, f"{name} must be {word} from {low:g} to {high:g}, got {value!r}"[:300])
    return value


def check_word(name: str, value: object, words: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in words:
        raise Refusal(422, f"{name} must be one of {list(words)}, got {value!r}"[:300])


def _check_option(name: str, value: object) -> None:
    match name:
        case "preset":
            check_word(name, value, list(PRESETS))
        case "quality":
            check_word(name, value, list(QUALITY))
        case "statistic":
            check_word(name, value, list(STATISTICS))
        case "groups":
            if not isinstance(value, str):
                check_number(name, value, 1, MOST_CELLS, whole=True)
            else:
                check_word(name, value, ("superpixels", "channels"))
        case "sparsity":
            check_number(name, value, 1e-4, 1)
        case "noise_level":
            check_number(name, value, 0, 2)
        case "rho":
            check_number(name, value, 0, 1000)
        case "seed":
            check_number(name, value, 0, 2**31 - 1, whole=True)


def _by_default(name: str) -> bool:
    return name != DEFAULT_METHOD
