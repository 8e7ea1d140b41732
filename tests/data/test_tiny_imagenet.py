"""The published layout of Tiny-ImageNet, half downloaded folders, and the tool that writes the layout."""

import csv
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from training_data import NAMES, WNIDS, make_tiny_imagenet

import moreaugrad as mg
from moreaugrad.data.images import read_image
from moreaugrad.data.tiny_imagenet import read_wnids

TOOL = Path(__file__).parents[2] / "tools" / "tiny_imagenet_folder.py"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Read only."""
    return make_tiny_imagenet(tmp_path_factory.mktemp("data") / "tiny-imagenet-200")


@pytest.fixture
def own(whole, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "tiny-imagenet-200"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_labels_follow_the_sorted_wnids_as_in_torchvision(whole):
    from torchvision.datasets import ImageFolder

    found = mg.read_tiny_imagenet(whole, "train")
    theirs = ImageFolder(str(whole / "train"))
    assert theirs.classes == read_wnids(whole) == list(WNIDS)
    assert {(str(path), label) for path, label in zip(found.pictures, found.labels, strict=True)} == set(theirs.imgs)
    assert (list(found.classes), found.boxes, found.labels.dtype, len(found)) == (list(NAMES), None, np.int64, 48)
    assert list(found.keys[:12]) == [f"{WNIDS[0]}_{number}" for number in range(12)]  # 2 before 10


@pytest.mark.parametrize("place", ["itself", "above"])
def test_val_follows_its_annotations(whole, place):
    found = mg.read_tiny_imagenet(whole if place == "itself" else str(whole.parent), "val")
    assert [path.name for path in found.pictures] == [f"{key}.JPEG" for key in found.keys]
    for key, label, box, picture in zip(found.keys, found.labels, found.boxes, found.pictures, strict=True):
        assert label == int(key.removeprefix("val_")) % 4
        assert box.tolist() == [label, 2, 61 + label, 3]  # the last column and row belong to the object
        assert read_image(picture).size == (64, 64)
    assert found.pixels().shape == (8, 64, 64, 3)
    np.testing.assert_array_equal(found.pixels()[3], np.asarray(Image.open(found.pictures[3])))


def test_without_words_a_class_is_called_by_its_wnid(own):
    (own / "words.txt").unlink()
    assert list(mg.read_tiny_imagenet(own, "val").classes) == list(WNIDS)


def annotated(change):
    """Damage to the lines of the annotations."""

    def damage(root: Path) -> None:
        path = root / "val/val_annotations.txt"
        lines = path.read_text().splitlines(keepends=True)
        changed = change(list(lines))
        assert changed != lines
        path.write_text("".join(changed))

    return damage


def first(old: str, new: str):
    return annotated(lambda lines: [lines[0].replace(old, new), *lines[1:]])


def no_image_of_a_class(root: Path) -> None:
    for name in ("val_2.JPEG", "val_6.JPEG"):
        (root / "val/images" / name).unlink()
    annotated(lambda lines: [line for line in lines if WNIDS[2] not in line])(root)


def class_without_images(root: Path) -> None:
    for path in (root / "train" / WNIDS[1] / "images").iterdir():
        path.unlink()


BAD = {
    "no annotations": (
        *("val", lambda root: (root / "val/val_annotations.txt").unlink()),
        r"must hold val/val_annotations.txt, got no such file; .*half unpacked",
    ),
    "no val image": (
        *("val", lambda root: (root / "val/images/val_5.JPEG").unlink()),
        r"all 8 image files must be there.*got 1 missing \(val_5.JPEG\)",
    ),
    "short annotations": (
        *("val", annotated(lambda lines: lines[:-1])),
        r"a line in val/val_annotations.txt for each image, got none for val_7.JPEG",
    ),
    "empty annotations": ("val", annotated(lambda lines: []), "for each image, got none for val_0.JPEG"),
    "cut annotation": ("val", first("\t60\t2\n", "\n"), r"four whole numbers of a box.* in line 1 of"),
    "unknown wnid": ("val", first(WNIDS[0], "n00000001"), r"a class of wnids.txt, got 'n00000001' in line 1"),
    "box inside out": ("val", first("\t0\t2\t60", "\t61\t2\t60"), "x0 <= x1"),
    "image twice": ("val", annotated(lambda lines: [*lines, lines[0]]), "each image once, got val_0.JPEG more"),
    "no image of a class": ("val", no_image_of_a_class, r"no image of 1 of 4 classes \(n03400231\)"),
    "empty wnids": (
        *("val", lambda root: (root / "wnids.txt").write_text("\n")),
        r"must name the classes.*cs231n.stanford.edu/tiny-imagenet-200.zip",
    ),
    "wnid twice": (
        *("val", lambda root: (root / "wnids.txt").write_text("\n".join([*WNIDS, WNIDS[0]]))),
        "each class once, got n01443537 more",
    ),
    "words of another kind": (
        *("val", lambda root: (root / "words.txt").write_bytes(b"\xff\xfe\xff")),
        "the names of the classes must be a readable text file",
    ),
    "no train": ("train", lambda root: shutil.rmtree(root / "train"), "must hold the folder train/"),
    "class without folder": (
        *("train", lambda root: shutil.rmtree(root / "train" / WNIDS[2])),
        r"got none for 1 of 4 classes \(n03400231\)",
    ),
    "class without images": ("train", class_without_images, r"got none for 1 of 4 classes \(n02124075\)"),
    "folder of no class": (
        *("train", lambda root: (root / "train/n00000001/images").mkdir(parents=True)),
        "must be a class of wnids.txt, got n00000001",
    ),
}


@pytest.mark.parametrize(("split", "damage", "words"), BAD.values(), ids=BAD.keys())
def test_half_downloaded_folders(own, split, damage, words):
    mg.read_tiny_imagenet(own, split)
    damage(own)
    with pytest.raises(ValueError, match=words):
        mg.read_tiny_imagenet(own, split)


def test_folders_that_are_none(tmp_path, whole):
    with pytest.raises(ValueError, match=r"nothing there; unpack cs231n.stanford.edu/tiny-imagenet-200.zip"):
        mg.read_tiny_imagenet(tmp_path / "missing", "val")
    with pytest.raises(ValueError, match="with nothing in it"):
        mg.read_tiny_imagenet(tmp_path, "val")
    for name in ("a.zip", "b", "c", "d"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"with a.zip, b, c, ... in it"):
        mg.read_tiny_imagenet(tmp_path, "val")
    with pytest.raises(ValueError, match="the test split has no labels"):
        mg.read_tiny_imagenet(whole, "test")


def compact(folder: Path, halves: tuple[str, ...] = ("train", "val")) -> Path:
    """Two zip files and their tables."""
    folder.mkdir()
    tables = {"classes.csv": [("class_index", "wnid", "name"), *((i, WNIDS[i], NAMES[i]) for i in (2, 0, 3, 1))]}
    if "train" in halves:
        members = [(f"{wnid}/{wnid}_{n}.JPEG", wnid, i) for i, wnid in enumerate(WNIDS) for n in range(2)]
        tables["train_labels.csv"] = [("file", "wnid", "class_index"), *members]
        pack(folder / "train_100_per_class.zip", [member[0] for member in members])
    if "val" in halves:
        rows = [(f"{wnid}/val_{9 + i}.JPEG", wnid, i, NAMES[i], i, 1, 60, 63) for i, wnid in enumerate(WNIDS)]
        header = ("file", "wnid", "class_index", "name", "box_x0", "box_y0", "box_x1", "box_y1")
        tables["labels.csv"] = [header, *rows]
        pack(folder / "val.zip", [row[0] for row in rows])
    for name, rows in tables.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return folder


def pack(path: Path, members: list[str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, member.encode())


def convert(*given: object) -> subprocess.CompletedProcess[str]:
    """Without site packages: Python alone must do."""
    command = [sys.executable, "-I", "-S", str(TOOL), *map(str, given)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("halves", [("train", "val"), ("train",), ("val",)], ids="+".join)
def test_tool(tmp_path, halves):
    out = tmp_path / "deep" / "tiny-imagenet-200"
    done = convert(compact(tmp_path / "compact", halves), out)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_wnids(out) == list(WNIDS)
    for half in ("train", "val"):
        if half not in halves:
            assert not (out / half).exists()
            continue
        found = mg.read_tiny_imagenet(out, half)
        assert list(found.classes) == list(NAMES)
        assert len(found) == (8 if half == "train" else 4)
        for picture, label in zip(found.pictures, found.labels, strict=True):
            assert picture.read_bytes() == f"{WNIDS[label]}/{picture.name}".encode()
    if "val" in halves:
        found = mg.read_tiny_imagenet(out, "val")
        assert list(found.keys) == ["val_9", "val_10", "val_11", "val_12"]
        assert found.boxes[2].tolist() == [2, 1, 61, 64]
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        ("labels.csv", "must be there"),
        ("classes.csv", "must be there"),
        ("zip", "must be a whole zip file"),
        ("member", "got 1 missing"),
        ("class", "must have the classes of classes.csv, got ['n00000001']"),
        ("column", "must have rows with file, wnid, box_x0"),
    ],
)
def test_tool_leaves_nothing_of_a_failure(tmp_path, spoiled, words):
    folder = compact(tmp_path / "compact")
    if spoiled.endswith(".csv"):
        (folder / spoiled).unlink()
    elif spoiled == "zip":
        (folder / "val.zip").write_bytes((folder / "val.zip").read_bytes()[:100])
    elif spoiled == "member":
        edit(folder / "labels.csv", "val_9", "val_99")
    elif spoiled == "class":
        edit(folder / "labels.csv", f",{WNIDS[0]},", ",n00000001,")
    else:
        edit(folder / "labels.csv", "box_y0", "top")
    done = convert(folder, tmp_path / "out")
    assert done.returncode == 1
    assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["compact"]


def test_tool_usage(tmp_path):
    assert "usage" in convert(tmp_path).stderr
    assert "got neither" in convert(tmp_path, tmp_path / "out").stderr
    (tmp_path / "out").mkdir()
    assert "must not be there yet" in convert(compact(tmp_path / "compact"), tmp_path / "out").stderr
