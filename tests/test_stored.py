"""A file of an explanation whose fields do not fit is refused; one that was written comes back."""

import json
from dataclasses import fields

import numpy as np
import pytest
import torch

import moreaugrad as mg
from moreaugrad import Explanation, stored

WHOLE = {
    "map": torch.ones(2, 3, 4, 4),
    "delta": torch.ones(2, 3, 4, 4),
    "target": [1, 2],
    "score": torch.ones(2),
    "converged": torch.tensor([True, False]),
    "gradients": torch.tensor([3, 4]),
    "seed": 3,
    "method": "Moreau",
    "options": {"eta": 0.1, "preset": None, "kind": "x"},
}


def edit(path, change):
    """The file with another JSON text, or other arrays."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays["meta"]))
    change(meta["plain"], arrays)
    arrays["meta"] = np.array(json.dumps(meta))
    np.savez(path, **arrays)
    return path


CHANGES = {
    "an unknown field": lambda plain, arrays: plain.update(new=1),
    "no map": lambda plain, arrays: arrays.pop("map"),
    "a map of text": lambda plain, arrays: (arrays.pop("map"), plain.update(map="x")),
    "a complex map": lambda plain, arrays: arrays.update(map=arrays["map"] * 1j),
    "a map without images": lambda plain, arrays: arrays.update(map=arrays["map"][0, 0, 0]),
    "another delta": lambda plain, arrays: arrays.update(delta=arrays["delta"][:1]),
    "too many scores": lambda plain, arrays: arrays.update(score=np.ones(3)),
    "a score of text": lambda plain, arrays: (arrays.pop("score"), plain.update(score="x")),
    "too few targets": lambda plain, arrays: plain.update(target=[1, 2, 3]),
    "a target that is no class": lambda plain, arrays: plain.update(target=[1.5, 2]),
    "a seed that is none": lambda plain, arrays: plain.update(seed="x"),
    "options in a list": lambda plain, arrays: plain.update(options=[1]),
    "inputs of other images": lambda plain, arrays: (
        arrays.update({"source_inputs": np.ones((3, 3, 4, 4))}),
        plain.update(source={"dict": {}}),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_fields_that_do_not_fit_are_refused(tmp_path, change):
    path = mg.Explanation(**WHOLE).save(tmp_path / "maps.npz")
    assert mg.Explanation.load(edit(path, lambda plain, arrays: None)).target == [1, 2]
    with pytest.raises(ValueError, match="write it again"):
        mg.Explanation.load(edit(path, change))


def test_every_target_that_can_be_explained_comes_back(tmp_path):
    for target in (None, 3, (1, 2), [1, 2], [(0, 1), (2, 3)], torch.tensor([1, 2]), torch.tensor([4])):
        found = mg.Explanation.load(mg.Explanation(map=torch.ones(2, 5), target=target).save(tmp_path / "maps"))
        same = torch.equal(found.target, target) if isinstance(target, torch.Tensor) else found.target == target
        assert same
    several = mg.Explanation(map=(torch.ones(2, 5), torch.ones(2, 3, 4)), delta=(torch.ones(2, 5), torch.ones(2, 3, 4)))
    assert [part.shape for part in mg.Explanation.load(several.save(tmp_path / "maps")).delta] == [(2, 5), (2, 3, 4)]


def test_a_folder_or_nothing_in_the_place_of_a_file_is_told(tmp_path):
    (tmp_path / "maps.npz").mkdir()
    with pytest.raises(IsADirectoryError, match="got a folder"):
        mg.Explanation.load(tmp_path / "maps.npz")
    with pytest.raises(IsADirectoryError, match="got a folder"):
        mg.Explanation(map=torch.ones(1, 4)).save(tmp_path / "maps.npz")
    with pytest.raises(FileNotFoundError, match="check the path"):
        mg.Explanation.load(tmp_path / "nothing")


def test_a_text_that_is_nested_too_deeply(tmp_path):
    path = mg.Explanation(**WHOLE).save(tmp_path / "maps.npz")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **arrays | {"meta": np.array("[" * 10**5)})
    with pytest.raises(ValueError, match="nested too deeply"):
        mg.Explanation.load(path)


def test_every_field_of_an_explanation_is_known_to_its_files():
    """Else a file with a new field could be written and not be read."""
    known = {*stored.PER_IMAGE, *stored.LIKE_MAP, *stored.OTHERS} - {"source_inputs"}  # of `source`
    assert known == {each.name for each in fields(Explanation)}
