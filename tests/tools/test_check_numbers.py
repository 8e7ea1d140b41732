"""The tool that compares two versions of the code finds every difference that counts, and no other."""

import check_numbers as tool
import numpy as np
import pytest
import torch


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        ([1.0, 2.0], [1.0, 2.0], False),
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-12], False),
        ([1e-16], [3e-16], False),  # the residual of an exact solution is rounding
        ([1.0, 2.0], [1.0, 2.0 + 1e-9], True),
        ([0.01], [0.01 + 1e-11], True),
        ([1.0, np.nan], [1.0, 2.0], True),
        ([1.0], [np.inf], True),
        ([1.0, 2.0], [1.0], True),
        ([True, False], [True, True], True),
    ],
)
def test_differences(old, new, moved):
    assert (tool.difference(np.array(old), np.array(new)) > tool.LIMIT) == moved


def test_a_missing_name_fails_and_a_new_one_does_not(tmp_path, capsys):
    few, many = str(tmp_path / "few.npz"), str(tmp_path / "many.npz")
    np.savez(few, a=np.ones(2))
    np.savez(many, a=np.ones(2), b=np.ones(3))
    assert tool.compare(few, few) == 0
    assert tool.compare(few, many) == 0
    assert tool.compare(many, few) == 1
    assert f"only in {many}: b" in capsys.readouterr().out


def test_results_are_flattened_into_named_arrays():
    maps = tool.mg.Gradient(tool.CNN).explain(tool.IMAGES)
    found = dict(tool.flatten("case", [maps, {"value": torch.ones(2)}, None]))
    assert {"case[0]:map", "case[0]:score", "case[0]:gradients", "case[1]:value"} <= set(found)
    assert found["case[0]:map"].shape == tuple(tool.IMAGES.shape)
