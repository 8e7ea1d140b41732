"""Devices without float64: nothing on the way to a map may ask for it."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from moreaugrad import METHODS, batch
from moreaugrad.methods.options import make_method

# these make small tables on the CPU in float64, and move them to the device in its own type
TABLES_ON_CPU = {"meaningful_perturbation", "relex", "fgvis"}


class Refusing(TorchDispatchMode):
    """A device on which float64 does not exist."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            given = func is torch.ops.aten.lift_fresh.default  # numbers of Python and numpy, on their way from the CPU
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64 and not given:
                raise TypeError(f"{func} made a tensor of float64")
        return found


def usable() -> list[str]:
    return [name for name, each in METHODS.items() if "trained" not in each.flags and name not in TABLES_ON_CPU]


@pytest.mark.parametrize("name", usable())
def test_no_method_needs_float64(name, monkeypatch):
    monkeypatch.setattr(batch, "NO_DOUBLE", ("mps", "cpu"))
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    method = make_method(name, network, {"budget": 16} if "solver" in METHODS[name].flags else {})
    x = torch.rand(2, 3, 8, 8)
    with Refusing():
        found = method.explain(x)
    assert bool(found.map.isfinite().all())
    assert found.map.dtype == torch.float32


def test_the_mode_sees_float64():
    with Refusing(), pytest.raises(TypeError, match="float64"):
        torch.ones(2).double()
