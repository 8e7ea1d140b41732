"""The result object: what is stored comes back, nothing half is left, and the summary tells the truth."""

import json
import os
import pickle
import stat
import time
from dataclasses import fields, replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch import Tensor

from moreaugrad import files
from moreaugrad.results import Explanation
from moreaugrad.source import InputSource

TARGETS = {
    "none": None,
    "int": 7,
    "tuple": (1, 2),
    "list": [4, 5, 6],
    "tuples": [(0, 1), (1, 2), (2, 3)],
    "tensor": torch.tensor([7, 8, 9]),
    "scalar": torch.tensor(3),
}


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(seed))


def full(**changes: object) -> Explanation:
    known = Explanation(
        map=images(),
        delta=images(1),
        target=torch.tensor([7, 8, 9]),
        eta=torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64),
        score=torch.tensor([1.0, 2.0, 3.0]),
        envelope=torch.tensor([0.5, 1.5, 2.5]),
        residual=torch.tensor([1e-3, float("nan"), float("inf")]),
        converged=torch.tensor([True, False, False]),
        gradients=torch.tensor([800, 800, 800]),
        stderr=images(2),
        seed=11,
        method="sparse_moreau",
        options={"rho": 1.0, "samples": 16, "eta": None, "solver": "dual_averaging", "antithetic": True},
    )
    return replace(known, **changes)


def paired() -> Explanation:
    other = torch.arange(12.0).reshape(3, 4)
    return full(map=(images(), other), delta=(images(1), -other), stderr=(images(2), other / 2))


def same(found: object, wanted: object) -> bool:
    """Equal in type, dtype and value; NaN equals NaN."""
    if isinstance(wanted, Tensor):
        return (
            isinstance(found, Tensor)
            and found.dtype == wanted.dtype
            and found.shape == wanted.shape
            and torch.equal(found.nan_to_num(nan=-1), wanted.nan_to_num(nan=-1))
        )
    if isinstance(wanted, tuple | list):
        return type(found) is type(wanted) and len(found) == len(wanted) and all(map(same, found, wanted))
    return type(found) is type(wanted) and found == wanted


def assert_same(found: Explanation, wanted: Explanation) -> None:
    for each in fields(Explanation):
        assert same(getattr(found, each.name), getattr(wanted, each.name)), each.name


STORED = {
    "full": full,
    "bare": lambda: Explanation(map=images()),
    "paired": paired,
    "tuple of one": lambda: full(map=(images(),)),
    **{f"target {name}": lambda target=target: full(target=target) for name, target in TARGETS.items()},
}


@pytest.mark.parametrize("make", STORED.values(), ids=STORED.keys())
def test_every_field_comes_back(tmp_path: Path, make):
    result = make()
    assert_same(Explanation.load(result.save(tmp_path / "a")), result)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_are_stored_exactly_as_float32(tmp_path: Path, dtype):
    found = Explanation.load(full(map=images().to(dtype).requires_grad_()).save(tmp_path / "a"))
    assert (found.map.dtype, found.map.requires_grad) == (torch.float32, False)
    assert torch.equal(found.map, images().to(dtype).float())


def test_the_file_is_plain_numpy_without_pickle(tmp_path: Path):
    path = paired().save(tmp_path / "a")
    with np.load(path, allow_pickle=False) as stored:
        assert {"map.0", "map.1", "eta", "meta"} <= set(stored.files)
        assert all(stored[name].dtype != object for name in stored.files)
        assert np.array_equal(stored["map.0"], images().numpy())
        assert json.loads(str(stored["meta"]))["plain"]["method"] == "sparse_moreau"


def test_the_ending_is_added_once_and_found_again(tmp_path: Path):
    assert full().save(tmp_path / "a.b") == tmp_path / "a.b.npz"
    assert full().save(str(tmp_path / "c.npz")) == tmp_path / "c.npz"
    assert Explanation.load(tmp_path / "a.b").gradients.tolist() == [800] * 3
    renamed = (tmp_path / "c.npz").rename(tmp_path / "c.stored")
    assert Explanation.load(renamed).gradients.tolist() == [800] * 3


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_has_ordinary_permissions(tmp_path: Path):
    (tmp_path / "plain").touch()
    stored = full().save(tmp_path / "a")
    assert stat.S_IMODE(stored.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def interrupted(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("owner", "name"), [(np.lib.format, "write_array"), (Path, "replace")])
def test_an_interrupted_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch, owner, name):
    path = full(seed=1).save(tmp_path / "a")
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        full(seed=2).save(path)
    monkeypatch.undo()
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]
    assert Explanation.load(path).seed == 1


def test_a_save_cut_in_the_middle_of_writing_leaves_nothing(tmp_path: Path, monkeypatch):
    written = []

    def write_some(archive, entry, content, **options):
        if written:
            raise OSError("No space left on device")
        written.append(archive.fp.write(b"PK half of a file"))

    monkeypatch.setattr(ZipFile, "writestr", write_some)
    with pytest.raises(OSError, match="No space left"):
        full().save(tmp_path / "a")
    assert written
    assert not list(tmp_path.iterdir())


def test_equal_results_give_equal_bytes(tmp_path: Path, monkeypatch):
    first = full().save(tmp_path / "a").read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert full().save(tmp_path / "b").read_bytes() == first


def test_what_cannot_be_stored_is_named(tmp_path: Path):
    with pytest.raises(TypeError, match=r"options\['groups'\].*got Tensor"):
        full(options={"groups": torch.zeros(3)}).save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"folder .* must exist"):
        full().save(tmp_path / "nowhere" / "a")
    with pytest.raises(FileNotFoundError):
        Explanation.load(tmp_path / "a")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, share):
    path = full().save(tmp_path / "a")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"must be a whole file written by Explanation\.save"):
        Explanation.load(path)


def test_a_damaged_map_is_refused_when_loaded(tmp_path: Path):
    path = full().save(tmp_path / "a")
    stored = bytearray(path.read_bytes())
    start = stored.index(b"map.npy") + 60
    stored[start : start + 40] = bytes(40)
    path.write_bytes(stored)
    with pytest.raises(ValueError, match="must be a whole file"):
        Explanation.load(path)


def test_files_of_others_are_refused(tmp_path: Path):
    np.savez(tmp_path / "other.npz", map=np.zeros(3))
    alike = {"format": "other", "version": 1, "tuples": {}, "plain": {}}
    np.savez(tmp_path / "named.npz", meta=np.array(json.dumps(alike)), map=np.zeros((1, 3)))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"map": 1}))
    (tmp_path / "text.npz").write_text("map")
    for name in ("other.npz", "named.npz", "array.npy", "pickle.npz", "text.npz"):
        with pytest.raises(ValueError, match="must be a whole file"):
            Explanation.load(tmp_path / name)


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "VERSION", files.VERSION + 1)
    path = full().save(tmp_path / "a")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=rf"version {files.VERSION} or lower, got {files.VERSION + 1}.*upgrade"):
        Explanation.load(path)


def test_an_index_gives_a_batch_of_one():
    result = full()
    one = result[1]
    assert (len(result), len(one)) == (3, 1)
    assert torch.equal(one.map, images()[1:2])
    assert torch.equal(one.stderr, images(2)[1:2])
    assert one.target.tolist() == [8]
    assert one.eta.tolist() == [0.2]
    assert not one.converged.item()
    assert (one.gradients.item(), one.seed, one.method) == (800, 11, "sparse_moreau")
    assert_same(result[-2], one)
    assert_same(result[np.int64(1)], one)
    assert len(result[1:]) == 2
    assert [part.target.item() for part in result] == [7, 8, 9]


@pytest.mark.parametrize(
    ("target", "one"),
    [(None, None), (7, 7), ((1, 2), (1, 2)), ([4, 5, 6], [5]), ([(0, 1), (1, 2), (2, 3)], [(1, 2)])],
)
def test_an_index_takes_the_target_of_its_image(target, one):
    assert full(target=target)[1].target == one
    assert full(target=torch.tensor([3]))[2].target.tolist() == [3]  # one for all


def test_an_index_goes_into_every_tensor_of_a_tuple():
    one = paired()[2]
    assert [tuple(part.shape) for part in one.map] == [(1, 2, 4, 5), (1, 4)]
    assert one.delta[1].tolist() == [[-8, -9, -10, -11]]


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_beyond_the_batch_is_an_error(index):
    with pytest.raises(IndexError, match=f"one of 3 images, got {index}"):
        full()[index]


def test_shares_that_are_kept():
    drawing = torch.zeros(2, 3, 2, 2)
    drawing[0, :, 0, 0] = torch.tensor([1.0, -1.0, 0.0])  # two entries of one pixel, whose sum is zero
    drawing[1] = 1
    result = Explanation(map=drawing)
    assert result.kept.tolist() == pytest.approx([2 / 12, 1])
    assert result.pixels_kept.tolist() == pytest.approx([1 / 4, 1])


def test_shares_without_pixels_and_over_a_tuple():
    table = torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1]])
    assert torch.equal(Explanation(map=table).pixels_kept, torch.tensor([0.25, 1]))
    pair = Explanation(map=(table, torch.zeros(2, 3, 2, 2)))
    assert pair.kept.tolist() == pytest.approx([1 / 16, 4 / 16])
    assert pair.pixels_kept.tolist() == pytest.approx([1 / 8, 4 / 8])


def test_the_summary_tells_each_image_in_a_line():
    drawing = images()
    drawing[0, 0] = 0
    text = str(full(map=drawing, stderr=drawing / 5))
    heading, first, second, third = text.splitlines()
    assert "sparse_moreau" in heading
    assert "800 gradients" in heading
    assert "seed 11" in heading
    for words in ("target 7", "score 1", "keeps 50 % of the entries (100 % of the pixels)", "known to within 20 %"):
        assert words in first
    assert "not converged" not in first
    assert "not converged" in second
    assert "target 9" in third
    assert "tensor" not in text


def test_the_summary_warns_of_maps_that_another_seed_contradicts():
    sizes = torch.tensor([0.02, 0.4, float("nan")]).view(3, 1, 1, 1)
    _, known, noisy, unmeasured = str(full(stderr=sizes * images(), converged=None)).splitlines()
    assert "known to within 2 %" in known
    assert "seed" not in known
    assert "40 %" in noisy
    assert "another seed" in noisy
    assert "not measured" in unmeasured


def test_the_relative_error_covers_what_the_map_keeps():
    drawing = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = Explanation(map=drawing, stderr=torch.full((2, 4), 0.5))
    torch.testing.assert_close(found.relative_error, torch.tensor([0.5**0.5 / 5, 0.0]))
    pair = Explanation(map=(drawing[:, :1], drawing[:, 1:]), stderr=(found.stderr[:, :1], found.stderr[:, 1:]))
    assert torch.equal(pair.relative_error, found.relative_error)
    assert Explanation(map=drawing).relative_error is None


def test_the_summary_explains_odd_maps():
    zero = full(map=torch.zeros(3, 2, 4, 5))
    assert "eta is above every gradient entry; lower it or use sparsity=" in str(zero)
    assert "eta" not in str(replace(zero, eta=None))
    assert "the score does not change with the input" in str(replace(zero, eta=None))
    assert "all zero" not in str(full())
    assert "NaN or infinity" in str(full(map=images() / 0))
    assert "NaN or infinity" not in str(full())
    one = torch.zeros(1, 1, 200, 200)
    one[0, 0, 3, 3] = 1  # is not rounded to nothing
    assert "keeps 0.0025 % of the entries" in str(Explanation(map=one))


def test_a_long_summary_is_cut():
    text = repr(Explanation(map=torch.ones(64, 2)))
    assert text.endswith("... and 54 more")
    assert len(text.splitlines()) == 12


def test_moving_moves_every_tensor():
    moved = paired().to("meta")
    tensors = [*moved.map, *moved.delta, *moved.stderr, moved.target, moved.eta, moved.score, moved.converged]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.options == paired().options
    assert_same(paired().cpu(), paired())
    assert_same(pickle.loads(pickle.dumps(paired())), paired())


def with_source() -> Explanation:
    pictures = torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(3))
    return full(source=InputSource(inputs=(pictures,), labels=[f"class number {i}" for i in range(8)]))


def test_the_source_follows_its_images(tmp_path: Path):
    result = with_source()
    assert result.labels == ["class number 7", None, None]  # of classes 7, 8 and 9
    assert torch.equal(result[1].source.inputs[0], result.source.inputs[0][1:2])
    assert [len(each.source.inputs[0]) for each in (result, result[1:], result[-1])] == [3, 2, 1]
    assert result[0].source.inputs[0].data_ptr() == result.source.inputs[0].data_ptr()  # by reference
    assert result.to("meta").source.inputs[0].device.type == "meta"
    again = pickle.loads(pickle.dumps(replace(result, source=replace(result.source, view=lambda picture: picture))))
    assert torch.equal(again.source.inputs[0], result.source.inputs[0])
    assert "class number 7 (class 7)" in str(result)
    assert "target 8" in str(result)


def test_a_file_holds_the_picture_in_8_bits_and_only_the_names_it_needs(tmp_path: Path):
    path = with_source().save(tmp_path / "a")
    with np.load(path, allow_pickle=False) as stored:
        assert (stored["source_inputs.0"].dtype, stored["source_inputs.0"].shape) == (np.uint8, (3, 3, 4, 5))
        assert "class number 6" not in str(stored["meta"])
    loaded = Explanation.load(path)
    assert loaded.labels == with_source().labels
    for i in range(3):
        shown = [each.source.picture(0, i) for each in (loaded, with_source())]
        assert np.abs(shown[0] - shown[1]).max() <= 0.5 / 255 + 1e-9
    again = Explanation.load(loaded[1:].save(tmp_path / "b"))
    assert torch.equal(again.source.inputs[0], loaded.source.inputs[0][1:])


def test_a_file_of_the_first_version_can_still_be_read(tmp_path: Path, monkeypatch):
    result = full()
    values = {name: value for name, value in vars(result).items() if name != "source"}
    monkeypatch.setattr(files, "VERSION", 1)
    files.write_npz(tmp_path / "a.npz", values)
    monkeypatch.undo()
    assert_same(Explanation.load(tmp_path / "a"), result)


def test_a_dictionary_is_strict_json_of_every_image():
    result = with_source()
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (found["method"], found["seed"], found["shape"]) == ("sparse_moreau", 11, [2, 4, 5])
    assert found["options"] == dict(result.options)
    assert [each["target"] for each in found["images"]] == [7, 8, 9]
    assert [each["label"] for each in found["images"]] == ["class number 7", None, None]
    assert [each["residual"] for each in found["images"]] == [pytest.approx(1e-3), None, None]
    assert [each["kept"] for each in found["images"]] == result.kept.tolist()
    assert [each["relative_error"] for each in found["images"]] == result.relative_error.tolist()
    assert Explanation(map=images()).to_dict()["images"][0]["score"] is None
    assert paired().to_dict()["shape"] == [[2, 4, 5], [4]]
    assert [each["target"] for each in full(target=5).to_dict()["images"]] == [5, 5, 5]


JOINED = {"full": full, "paired": paired, "with source": with_source, "bare": lambda: Explanation(map=images())}


@pytest.mark.parametrize("make", JOINED.values(), ids=JOINED.keys())
def test_joining_the_images_of_a_batch_gives_the_batch(make):
    result = make()
    joined = Explanation.concat(result)
    for each in fields(Explanation):
        if each.name != "source":
            assert same(getattr(joined, each.name), getattr(result, each.name)), each.name
    if result.source is not None:
        assert torch.equal(joined.source.inputs[0], result.source.inputs[0])
        assert joined.labels == result.labels


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_joined_results_keep_the_target_of_each_image(target):
    one, other = full(target=target), full(target=torch.tensor([1, 2, 3]))
    wanted = [each["target"] for part in (one, other) for each in part.facts()]
    assert [each["target"] for each in Explanation.concat([one, other]).facts()] == wanted


def test_what_parts_do_not_share_is_left_out():
    joined = Explanation.concat(
        [full(), full(seed=12, stderr=None, method="other", options={"rho": 1.0, "samples": 8})]
    )
    assert (joined.seed, joined.stderr, joined.method, joined.options) == (None, None, "", {"rho": 1.0})
    assert len(joined.map) == 6
    with pytest.raises(ValueError, match="one shape, got maps of"):
        Explanation.concat([full(), Explanation(map=torch.zeros(3, 4))])
    with pytest.raises(ValueError, match="got none"):
        Explanation.concat([])


def test_the_text_of_a_long_batch_costs_no_more_than_that_of_ten(monkeypatch):
    sizes = []
    kept = Explanation.kept.fget
    monkeypatch.setattr(Explanation, "kept", property(lambda self: sizes.append(len(self)) or kept(self)))
    repr(Explanation(map=torch.ones(5000, 2), source=InputSource(inputs=(torch.ones(5000, 2),))))
    assert max(sizes) <= 10


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_loaded_and_a_fresh_result_are_joined_and_drawn_alike(channels, tmp_path):
    from moreaugrad.source import InputSource

    drawing = torch.rand(2, channels, 6, 6, generator=torch.Generator().manual_seed(1))
    fresh = Explanation(map=drawing, source=InputSource(inputs=(drawing,)))
    both = Explanation.concat([fresh, Explanation.load(fresh.save(tmp_path / "map"))])
    pictures = [both.source.picture(0, i) for i in range(4)]
    np.testing.assert_allclose(pictures[0], pictures[2], atol=0.01)
    np.testing.assert_allclose(pictures[1], pictures[3], atol=0.01)


def test_an_empty_result_and_tiny_maps_are_told():
    assert "0 x" in str(full()[0:0])
    tiny = torch.full((1, 4), 1e-24)
    assert Explanation(map=tiny, stderr=10 * tiny).relative_error.item() == pytest.approx(10)
