"""Explanations in .npz files: whole ones come back as they were; others are refused, or are whole explanations too."""

from __future__ import annotations

import json
import random
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import moreaugrad as mg
from reliability.fuzz.case import Case
from reliability.fuzz.damage import VALUES, edit, spoil
from reliability.fuzz.image_files import COLOUR
from reliability.fuzz.tiny_network import shared_network

ARRAYS: tuple[Any, ...] = (
    *(np.zeros(0), np.zeros((2, 3, 8, 8)), np.zeros((3, 3, 8, 8), np.float32), np.zeros((2, 8)), np.zeros(())),
    *(np.array(["a", "b"]), np.array([1j, 2]), np.array([True, False]), np.array([[1, 2]]), np.array([2**63])),
    *(np.array([np.nan, np.inf]), np.zeros((1, 0, 8, 8)), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, ">f4")),
)


@cache
def list_explanations() -> dict[str, mg.Explanation]:
    """Results of several kinds."""
    net = shared_network()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    photo, several = Image.fromarray(COLOUR), cast(Any, (torch.ones(2, 4), torch.ones(2, 3, 5)))
    with torch.random.fork_rng(devices=[]):
        return {
            "gradient": mg.explain(net, x, "gradient", target=[0, 1]),
            "moreau": mg.explain(net, x, "sparse_moreau", sparsity=0.1, budget=8, preset=None),
            "photo": mg.explain(net, [photo, photo], "moreau", budget=8, preset=None),
            "several inputs": mg.Explanation(map=several, target=torch.tensor([1, 2])),
        }


def make_explanation_case(chance: random.Random) -> Case:
    name = chance.choice(list(list_explanations()))
    given = list_explanations()[name]
    content, what = (
        given.to_bytes(),
        chance.choice(("whole", "spoilt", "spoilt", "edited", "edited", "edited", "array")),
    )
    if what == "spoilt":
        content = spoil(chance, content)
    elif what in ("edited", "array"):
        content = _change_entry(chance, content, what == "array")
    act = chance.choice(("read", "describe", "draw", "save", "index", "join"))

    def run(folder: Path) -> object:
        (path := folder / "out" / "maps.npz").write_bytes(content)
        found = mg.Explanation.load(path)
        use(found, act, folder / "out")
        return found

    def check(found: Any) -> str | None:
        return _compare(given, found) if what == "whole" else _find_misfit(found)

    return Case(f"an explanation of {name}, {what}, then {act}", run, check)


def _change_entry(chance: random.Random, content: bytes, array: bool) -> bytes:
    """Another array, or another value in the JSON text."""
    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if array:
        arrays[chance.choice([*arrays, "new", "eta", "score", "stderr"])] = chance.choice((*ARRAYS, *VALUES[:10]))
    else:
        try:
            arrays["meta"] = np.array(json.dumps(edit(chance, json.loads(str(arrays["meta"])))))
        except (ValueError, RecursionError):
            arrays["meta"] = np.array("{" * 100)
    try:
        np.savez(stored := BytesIO(), **arrays)
    except (ValueError, TypeError, OverflowError, UnicodeError):  # what numpy does not write
        return content[:-9]
    return stored.getvalue()


def use(found: mg.Explanation, act: str, folder: Path) -> None:
    """What users do with a result."""
    if act == "describe":
        text = repr(found) + json.dumps(found.to_dict(), allow_nan=False)
        assert text
        assert all(found.relative_error.shape == (len(found),) for _ in [0] if found.relative_error is not None)
    elif act == "draw":
        found.show(folder / "map.png")
    elif act == "save":
        again = mg.Explanation.load(found.save(folder / "again.npz"))
        assert again.to_bytes() == found.to_bytes()
    elif act == "index":
        assert [len(each) for each in found] == [1] * len(found)
    elif act == "join":
        assert len(mg.Explanation.concat([found, found])) == 2 * len(found)


def _compare(given: mg.Explanation, found: mg.Explanation) -> str | None:
    """Every field is as it was written; half precisions and pictures aside, which are not among them."""
    for name, value in vars(given).items():
        other = getattr(found, name)
        if name in ("source", "moments"):
            continue
        parts, others = (each if isinstance(each, tuple) else (each,) for each in (value, other))
        for one, two in zip(parts, others, strict=True):
            same = torch.equal(one.nan_to_num(7), two.nan_to_num(7)) if isinstance(one, Tensor) else one == two
            if not same:
                return f"another {name} than was written"
    return None if found.labels == given.labels else "other labels than were written"


def _find_misfit(found: mg.Explanation) -> str | None:
    """What is read fits together: as many rows as maps, of the maps' shape."""
    parts = found.map if isinstance(found.map, tuple) else (found.map,)
    rows = {len(each) for each in parts}
    for name in ("eta", "score", "envelope", "residual", "converged", "gradients"):
        value = getattr(found, name)
        if value is not None and (not isinstance(value, Tensor) or value.shape != (len(found),)):
            return f"{name} that does not fit the maps"
    return None if len(rows) == 1 and len(found.labels) == len(found) else "maps that do not fit each other"
