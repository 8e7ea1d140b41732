"""The device that is taken where none is asked for."""

import pytest
import torch

from moreaugrad import validate
from moreaugrad.model.devices import best_device


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ((), "cpu"),
        (("cuda",), "cuda"),
        (("mps",), "mps"),
        (("xpu",), "xpu"),
        (("mps", "xpu"), "mps"),
        (("cuda", "mps", "xpu"), "cuda"),
    ],
)
def test_the_best_device_that_is_there_is_taken(monkeypatch, there, wanted):
    for name, backend in (("cuda", torch.cuda), ("mps", torch.backends.mps), ("xpu", torch.xpu)):
        monkeypatch.setattr(backend, "is_available", lambda name=name: name in there)
    monkeypatch.setattr(validate, "device", torch.device)  # the check that it works needs the device itself
    for asked in (None, "auto"):
        assert best_device(asked) == torch.device(wanted)
    assert best_device("cpu") == torch.device("cpu")
