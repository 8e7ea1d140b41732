"""The paper's data: every layout is found and read alike, and a sample is what the network sees."""

from pathlib import Path

import numpy as np
import pytest
import torch
from paper_data import BOXES, MADE, SMALL, make_archive, make_photos, make_strips, make_tiny

from paper.data import compact, datasets, layouts
from paper.data.datasets import sample
from paper.settings import DATASETS, Settings, by_dataset

RANDOM = {"tiny_imagenet": Path("random")}


# settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"datasets": ("cifar1",)}, "Did you mean 'cifar10'"),
        ({"models": {"imagnet": "x"}}, "Did you mean 'imagenet'"),
        ({"weights": {"tiny": "x"}}, "must be one of"),
        ({"datasets": ()}, "at least one"),
        ({"minutes": 0.0}, "--minutes"),
        ({"shard": 0}, "--shard must be a number from 1"),
        ({"minutes": float("nan")}, "--minutes"),
    ],
)
def test_settings_refuse_what_they_do_not_know(tmp_path, given, words):
    with pytest.raises(ValueError, match=words):
        Settings(tmp_path, tmp_path, **given)


def test_a_device_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(ValueError, match="--device must be"):
        _ = Settings(tmp_path, tmp_path, device="cuda:99").place
    with pytest.raises(ValueError, match="--device must be"):
        _ = Settings(tmp_path, tmp_path, device="toaster").place


def test_options_go_by_data_set_and_to_photos_by_themselves():
    assert by_dataset("--model", ["timm/resnet50", "cifar10=a:b"]) == {"imagenet": "timm/resnet50", "cifar10": "a:b"}
    with pytest.raises(ValueError, match="twice"):
        by_dataset("--model", ["x", "imagenet=y"])
    with pytest.raises(ValueError, match="Did you mean 'imagenet'"):
        by_dataset("--weights", ["imagenets=y"])
    with pytest.raises(ValueError, match="without a value"):
        by_dataset("--weights", ["imagenet="])


# layouts

CASES = [(name, form) for name, forms in MADE.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), CASES)
@pytest.mark.parametrize("below", ["", "some folder"])
def test_every_layout_is_found_in_the_folder_and_one_below(tmp_path, name, form, below):
    MADE[name][form](tmp_path / "data" / below)
    folder, layout = layouts.find(name, tmp_path / "data")
    found = layout.read(folder)
    assert folder == tmp_path / "data" / below
    assert len(found.pictures) == len(found.labels) == len(found.keys) == len(set(found.keys)) > 2
    assert found.classes[int(found.labels[1])]


def test_both_layouts_of_a_data_set_tell_the_same(tmp_path):
    make_tiny(tmp_path / "a")
    make_archive(tmp_path / "b")
    one, other = (layouts.find("tiny_imagenet", tmp_path / each)[1].read(tmp_path / each) for each in "ab")
    assert list(one.keys) == list(other.keys)
    assert list(one.classes) == list(other.classes)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    np.testing.assert_array_equal(one.labels, other.labels)


def test_torchvisions_folder_is_known_by_its_files(tmp_path):
    batches = tmp_path / "data" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    for name in layouts.BATCHES:
        (batches / name).touch()
    for place in (tmp_path / "data", batches):
        folder, layout = layouts.find("cifar10", place)
        assert folder == place
        with pytest.raises(ValueError, match="cifar-10-batches-py"):  # empty files: torchvision's check fails
            layout.read(folder)


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_missing_is_reported_with_all_that_helps(tmp_path, name):
    (tmp_path / "letters").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="must lie in") as caught:
        layouts.find(name, tmp_path)
    text = str(caught.value)
    assert all(layout.words in text for layout in layouts.LAYOUTS[name])
    assert layouts.GET[name] in text
    assert "letters/, notes.txt" in text


def test_half_of_a_data_set_is_reported_by_what_it_lacks(tmp_path):
    make_tiny(tmp_path / "tiny")
    (tmp_path / "tiny" / "val" / "val_annotations.txt").unlink()
    with pytest.raises(ValueError, match=r"tiny looks like the published .* lacks val/val_annotations\.txt"):
        layouts.find("tiny_imagenet", tmp_path)


def test_the_table_of_another_data_set_is_no_half(tmp_path):
    make_photos(tmp_path / "photos")
    with pytest.raises(ValueError, match="must lie in") as caught:
        layouts.find("tiny_imagenet", tmp_path)
    assert "looks like" not in str(caught.value)


def test_an_archive_of_tiny_imagenet_is_not_taken_for_photos(tmp_path):
    make_archive(tmp_path / "a")
    with pytest.raises(ValueError, match="photos with labels"):
        layouts.find("imagenet", tmp_path)


def test_damaged_files_are_reported(tmp_path):
    make_strips(tmp_path / "cifar")
    np.save(tmp_path / "cifar" / "test_labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="got 3 labels and 12 places"):
        sample("cifar10", Settings(tmp_path, tmp_path, models={"cifar10": SMALL}), 1)


# samples


def test_fewer_images_are_the_first_of_more(settings_for):
    few, many = (sample("cifar10", settings_for(), count) for count in (3, 9))
    assert few.keys == many.keys[:3]
    assert torch.equal(few.x, many.x[:3])
    assert torch.equal(few.labels, many.labels[:3])
    assert sample("cifar10", settings_for(), 9, seed=1).keys != many.keys
    assert len(set(many.keys)) == 9


def test_a_sample_holds_what_the_network_sees(settings_for, tmp_path):
    found = sample("cifar10", settings_for(models={}), 4)
    x = np.load(tmp_path / "data" / "cifar10.npz")["x_test"]
    for key, tensor, pixels, label in zip(found.keys, found.x, found.pixels, found.labels, strict=True):
        place = int(key.removeprefix("test_"))
        np.testing.assert_array_equal(pixels, x[place])
        assert label == place % 10
        back = tensor * found.classifier.std + found.classifier.mean
        np.testing.assert_allclose(255 * back.permute(1, 2, 0).numpy(), pixels, atol=1e-3)


def test_only_the_chosen_images_are_read(tmp_path):
    make_photos(tmp_path / "photos", 6)
    make_strips(tmp_path / "cifar", strips=3)
    make_archive(tmp_path / "tiny")
    given = Settings(tmp_path, tmp_path, models=dict.fromkeys(DATASETS, SMALL))
    keys = {name: sample(name, given, 1).keys[0] for name in DATASETS}
    for path in (tmp_path / "photos").glob("*.JPEG"):
        if path.stem != keys["imagenet"]:
            path.write_bytes(b"no image")
    strip = int(keys["cifar10"].removeprefix("test_")) // 2 // 4
    for number in {0, 1, 2} - {strip}:
        (tmp_path / "cifar" / "test" / f"{number:03d}.webp").write_bytes(b"no image")
    compact._read_strip.cache_clear()
    datasets._read.cache_clear()
    assert all(sample(name, given, 1).keys == [keys[name]] for name in ("cifar10", "imagenet"))
    with pytest.raises(ValueError, match="image"):
        sample("imagenet", given, 6)


@pytest.mark.parametrize("form", ["published", "archive"])
@pytest.mark.parametrize(
    ("model", "weights"), [("efficientnet_lite0_tiny_imagenet", {}), ("torchvision/resnet18", RANDOM)]
)
def test_boxes_lie_where_the_object_is_in_what_the_network_sees(tmp_path, form, model, weights):
    MADE["tiny_imagenet"][form](tmp_path)
    given = Settings(tmp_path, tmp_path, models={"tiny_imagenet": model}, weights=weights)
    found = sample("tiny_imagenet", given, 3)
    for box, pixels in zip(found.boxes, found.pixels, strict=True):
        bright = pixels.mean(2) > 127
        columns, rows = np.flatnonzero(bright.any(0)), np.flatnonzero(bright.any(1))
        seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        np.testing.assert_allclose(box.numpy(), seen, atol=1)


def test_boxes_are_doubled_by_a_network_of_twice_the_size(tmp_path):
    make_tiny(tmp_path)
    found = sample("tiny_imagenet", Settings(tmp_path, tmp_path), 3)
    wanted = [[2 * left, 2 * top, 2 * right + 2, 2 * bottom + 2] for left, top, right, bottom in BOXES]
    places = [int(key.removeprefix("val_")) for key in found.keys]
    assert found.boxes.tolist() == [wanted[place] for place in places]
    assert found.x.shape[1:] == (3, 128, 128)


def test_more_images_than_there_are_and_classes_that_are_not_there_are_reported(settings_for):
    with pytest.raises(ValueError, match="at least 13 images, got 12"):
        sample("cifar10", settings_for(), 13)
    with pytest.raises(ValueError, match=r"a class for each label.*--model cifar10="):
        sample("cifar10", settings_for(models={"cifar10": "small_network:Linear"}), 12)


def test_weights_of_another_network_are_reported_as_the_library_does(settings_for, tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "net.pt")
    given = settings_for(models={}, weights={"cifar10": tmp_path / "net.pt"})
    with pytest.raises(ValueError, match="weights must fit the model"):
        sample("cifar10", given, 1)


def test_the_digest_knows_images_and_weights(settings_for):
    first, same, more = (sample("cifar10", settings_for(), count).digest for count in (2, 2, 3))
    other = sample("cifar10", settings_for(models={"cifar10": "paper_network:Gated"}), 2).digest
    assert first == same
    assert len({first, more, other}) == 3
