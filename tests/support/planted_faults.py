"""A target of the fuzzers in which every case has a fault of its own, but for those named right."""

import os
import random
import time
import warnings

import numpy as np
import torch

import moreaugrad as mg
from moreaugrad import files, limits
from reliability.fuzz.case import Case


def _write_beside(folder):
    files.write_npz(folder / "beside.npz", {"map": torch.zeros(1)})


def _warn(folder):
    warnings.warn("overflow", RuntimeWarning, stacklevel=1)


def _finite(answer):
    return None if np.isfinite(answer).all() else "the answer is not finite"


CASES = [
    Case("right: an answer", lambda folder: np.ones(3), _finite),
    Case("right: a refusal", lambda folder: limits.positive("rho", -1)),
    Case("right: a file", lambda folder: files.write_npz(folder / "out" / "a.npz", {"map": torch.zeros(1)})),
    Case("right: Python's own refusal", lambda folder: mg.to_units(nonsense=3)),
    Case("a raw error of torch", lambda folder: torch.zeros(3) @ torch.zeros(4)),
    Case("a raw error inside the package", lambda folder: files.first_names(3)),
    Case("an exception of another kind", lambda folder: {}["key"]),
    Case("a silent NaN", lambda folder: np.array([1.0, np.nan]), _finite),
    Case("a warning from outside", _warn),
    Case("global state", lambda folder: torch.manual_seed(3)),
    Case("a file outside the output folder", _write_beside),
    Case("a process that ends", lambda folder: os._exit(7)),
    Case("a hang", lambda folder: time.sleep(1000)),
]
# what chance says first in the cases of seed 0, which tells them apart
_FIRST = [random.Random(f"planted_faults/0/{number}").random() for number in range(len(CASES))]


def make_case(chance):
    return CASES[_FIRST.index(chance.random())]
