"""Ranges and words that are checked without torch are those of the library."""

import pytest
import torch

from moreaugrad import GroupSparseMoreauGrad, limits
from moreaugrad.model.prepared import HALF
from moreaugrad.model.score import KINDS


def test_the_words_are_those_that_the_library_knows():
    assert set(limits.SCORES) == set(KINDS)
    assert set(HALF) < set(limits.PRECISIONS)
    for word in limits.GROUPS:
        found = GroupSparseMoreauGrad(lambda x: x.flatten(1), groups=word, budget=16).explain(torch.rand(1, 3, 16, 16))
        assert found.map.shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    "good",
    [
        {"rho": 0.5, "eta": 0.0, "groups": 3, "noise_level": 0, "samples": 1, "budget": 1, "seed": 0},
        {"sparsity": 1.0, "groups": "channels", "score": "prob", "precision": "tf32", "relative_error": 0.1},
        {"unheard_of": object()},
    ],
)
def test_what_some_method_takes_passes(good):
    limits.options(good)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rho", -1.0),
        ("tau", 1.0),
        ("rho", float("inf")),
        ("eta", float("nan")),
        ("sparsity", 0.0),
        ("sparsity", True),
        ("groups", "cells"),
        ("groups", 0),
        ("samples", 1.5),
        ("budget", 2**63),
        ("seed", -1),
        ("score", "loss"),
        ("precision", "half"),
    ],
)
def test_what_no_method_takes_is_refused_by_name(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        limits.options({name: value})
