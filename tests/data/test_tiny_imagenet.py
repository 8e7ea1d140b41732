"""Labelled images, the published layout of Tiny-ImageNet, and fine-tuning on it: end to end, resumed, and refused."""

import csv
import json
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import moreaugrad as mg
from moreaugrad.data.arrays import Arrays
from moreaugrad.data.images import read_image
from moreaugrad.data.tiny_imagenet import read_wnids
from moreaugrad.models import embedded, load_model
from moreaugrad.training.augment import resized, zoom_and_flip
from moreaugrad.training.files import train_tiny_imagenet
from moreaugrad.training.loop import Training, normalised
from moreaugrad.training.recipes import FineTuning, fresh

TOOL = Path(__file__).parents[2] / "tools" / "tiny_imagenet_folder.py"
WNIDS = ("n01443537", "n02124075", "n03400231", "n99999999")  # the last one is none of ImageNet's
NAMES = ("goldfish, Carassius auratus", "Egyptian cat", "frying pan, frypan, skillet", "made up")
COLOURS = ((220, 40, 40), (40, 200, 40), (40, 60, 220), (200, 200, 40))
CPU = torch.device("cpu")
OPTIONS = ["--size", "32", "--batch", "8", "--epochs", "3", "--lr", "0.01"]


def noisy(label: int, number: int) -> Image.Image:
    """A picture whose colour tells its class."""
    draw = np.random.default_rng((label, number))
    pixels = np.array(COLOURS[label]) + draw.integers(-40, 40, (64, 64, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make(root: Path, train: int = 6, val: int = 2) -> Path:
    """The published layout with four classes; wnids.txt is not sorted, as in the published one."""
    lines = []
    (root / "val/images").mkdir(parents=True)
    for label, wnid in enumerate(WNIDS):
        place = root / "train" / wnid / "images"
        place.mkdir(parents=True)
        for number in range(train):
            noisy(label, number).save(place / f"{wnid}_{number}.JPEG")
        for number in range(val):
            name = f"val_{number * len(WNIDS) + label}.JPEG"
            noisy(label, 100 + number).save(root / "val/images" / name)
            lines.append((name, wnid, label, 2, 60 + label, 2))
    (root / "val/val_annotations.txt").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    (root / "wnids.txt").write_text("\n".join(reversed(WNIDS)) + "\n")
    (root / "words.txt").write_text("".join(f"{wnid}\t{name}\n" for wnid, name in zip(WNIDS, NAMES, strict=True)))
    return root


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Read only."""
    return make(tmp_path_factory.mktemp("data") / "tiny-imagenet-200", train=12)


@pytest.fixture
def own(whole, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "tiny-imagenet-200"))


def notes(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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


def test_pictures_that_do_not_fit_together(own):
    path = own / "val/images/val_4.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    found = mg.read_tiny_imagenet(own, "val")
    with pytest.raises(ValueError, match=r"val_4.JPEG' must be an image file, got one that is truncated"):
        found.pixels()
    noisy(0, 0).resize((32, 48)).save(path)
    with pytest.raises(ValueError, match=r"size of the first, 64 x 64, got 32 x 48 in 'val_4'"):
        found.pixels()
    arrays = mg.LabelledImages([np.zeros((5, 4, 3), np.uint8)] * 2, np.zeros(2, np.int64), ["a", "b"], ["c"])
    assert arrays.pixels().shape == (2, 5, 4, 3)
    with pytest.raises(ValueError, match="got none"):
        mg.LabelledImages([], np.zeros(0, np.int64), [], ["c"]).pixels()


ROWS = [
    ("b.jpg", "n02124075", 285, "Egyptian cat"),
    ("a.jpg", "n01443537", 1, "goldfish"),
    ("c.jpg", "n1", 285, "Egyptian cat"),
]


def photos(folder: Path, rows: list[tuple[object, ...]], header: str = "file,wnid,class_index,name") -> Path:
    for name in "abc":
        noisy(0, 0).save(folder / f"{name}.jpg")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8-sig") as file:
        file.write(header + "\n")
        csv.writer(file).writerows(rows)
    return folder


def test_photos(tmp_path):
    found = mg.read_photos(photos(tmp_path, ROWS))
    assert ([path.name for path in found.pictures], list(found.keys)) == (["b.jpg", "a.jpg", "c.jpg"], ["b", "a", "c"])
    assert found.labels.tolist() == [285, 1, 285]
    assert (len(found.classes), found.classes[285], found.classes[1], found.classes[7]) == (
        *(1000, "Egyptian cat", "goldfish", "7"),
    )
    assert found.boxes is None
    (tmp_path / "labels.csv").rename(tmp_path / "other.csv")
    assert mg.read_photos(str(tmp_path), tmp_path / "other.csv").labels.tolist() == [285, 1, 285]
    with pytest.raises(ValueError, match=r"labels.csv': nothing there"):
        mg.read_photos(tmp_path)
    with pytest.raises(ValueError, match="must lie in a folder"):
        mg.read_photos(tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        ([], "file,wnid,class_index,name", "a row for each photo, got none"),
        (ROWS, "file,wnid,label,name", r"without \['class_index'\]: it has \['file', 'wnid', 'label', 'name'\]"),
        ([("z.jpg", "n1", 3, "x")], "file,wnid,class_index,name", r"1 missing \(z.jpg\)"),
        ([("a.jpg", "n1", 1000, "x")], "file,wnid,class_index,name", r"in 0..999, got '1000' in line 2"),
        ([("a.jpg", "n1", -1, "x")], "file,wnid,class_index,name", "got '-1'"),
        ([("a.jpg", "n1", 1.5, "x")], "file,wnid,class_index,name", "got '1.5'"),
        ([("a.jpg", "n1", "", "x")], "file,wnid,class_index,name", "must have a file and a class_index.* in line 2"),
        ([("a.jpg", "n1", 3, "x"), ("b.jpg", "n2", 3, "y")], "file,wnid,class_index,name", "one name, got 'x' and 'y'"),
    ],
    ids=["empty", "columns", "missing", "too large", "negative", "fraction", "hole", "two names"],
)
def test_bad_tables(tmp_path, rows, header, words):
    with pytest.raises(ValueError, match=words):
        mg.read_photos(photos(tmp_path, rows, header))


@pytest.mark.parametrize("size", [32, 64, 100, 128, 224])
def test_resized_is_the_view_of_the_model_bit_for_bit(size):
    pixels = np.random.default_rng(size).integers(0, 256, (6, 64, 64, 3), dtype=np.uint8)
    pixels[0], pixels[1, ::2] = 255, 0  # beyond both ends of 8 bits
    view = embedded.tiny_view(size)
    found = resized(torch.from_numpy(pixels), size)
    np.testing.assert_array_equal(found.numpy(), [np.asarray(view.apply(Image.fromarray(each))[1]) for each in pixels])
    x = torch.stack([view.apply(Image.fromarray(each))[0] for each in pixels])
    torch.testing.assert_close(normalised(found, FineTuning.scale), x, rtol=0, atol=0)


def test_parts_are_pillows_resize_of_a_box():
    """Boxes in sixteenths of a pixel, which both sides hold exactly."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (20, 48, 64, 3), dtype=np.uint8)
    (top, left), (height, width) = draw.integers(0, 256, (2, 20)) / 16, draw.integers(256, 512, (2, 20)) / 16
    down, across = (torch.tensor(np.stack(each, 1)) for each in ((top, height), (left, width)))
    boxes = np.stack([left, top, left + width, top + height], 1).tolist()
    found = resized(torch.from_numpy(pixels), 40, down, across).numpy()
    for image, ours, box in zip(pixels, found, boxes, strict=True):
        theirs = Image.fromarray(image).resize((40, 40), Image.Resampling.BICUBIC, box=tuple(box))
        np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_zoom_draws_parts_of_the_promised_size():
    """A ramp across and one down: their slopes are the share of each axis that is seen, their middle its place."""
    ramp = np.broadcast_to(np.arange(64), (64, 64))
    image = torch.from_numpy(np.stack([ramp, ramp.T, ramp], 2).astype(np.uint8))
    pixels = image.expand(500, -1, -1, -1)
    found = zoom_and_flip(pixels, torch.Generator().manual_seed(0), 64)
    assert torch.equal(found, zoom_and_flip(pixels, torch.Generator().manual_seed(0), 64))
    inner = found[:, 8:56, 8:56].double()
    across = (inner[:, :, -1, 0] - inner[:, :, 0, 0]).mean(1) / 47
    down = (inner[:, -1, :, 1] - inner[:, 0, :, 1]).mean(1) / 47
    assert (across > 0).double().mean().item() == pytest.approx(0.5, abs=0.09)  # four deviations
    area, shape = (across.abs() * down), (across.abs() / down)
    assert area.min().item() == pytest.approx(0.35, abs=0.03)
    assert area.max().item() == pytest.approx(1, abs=0.03)
    assert (shape.min().item(), shape.max().item()) == pytest.approx((3 / 4, 4 / 3), abs=0.06)
    assert inner.min() < 10
    assert inner.max() > 53


def test_the_first_network_is_imagenets_cut_down():
    whole, cut = load_model("efficientnet_lite0"), load_model("efficientnet_lite0_tiny_imagenet")
    assert (cut.size, len(cut.labels), cut.labels[0], cut.labels[-1]) == (
        (128, 128),
        200,
        "goldfish",
        whole.labels[988],
    )
    rows = list(map(int, embedded.TINY_IMAGENET.split()))
    x = torch.randn(2, 3, 128, 128)
    torch.testing.assert_close(cut(x), whole(x)[:, rows])
    picture = noisy(1, 0)
    assert cut.crop(picture).size == (128, 128)
    np.testing.assert_array_equal(cut.crop(picture), picture.resize((128, 128), Image.Resampling.BICUBIC))
    assert (cut.view.mean, cut.view.std) == (whole.view.mean, whole.view.std)


def test_the_classes_are_those_of_the_data(data):
    table = data("tiny_imagenet") / "classes.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert embedded.tiny_imagenet_wnids() == [row["wnid"] for row in rows]


def test_rows_of_known_classes_are_imagenets_and_others_random():
    recipe = FineTuning(wnids=WNIDS)
    first, again, other = fresh(recipe), fresh(recipe), fresh(FineTuning(wnids=WNIDS, seed=1))
    last = load_model("efficientnet_lite0").network.classifier
    for row, index in enumerate((1, 285, 567)):
        assert torch.equal(first.classifier.weight[row], last.weight[index])
        assert first.classifier.bias[row] == last.bias[index]
    assert same(first.state_dict(), again.state_dict())
    assert not torch.equal(first.classifier.weight[3], other.classifier.weight[3])
    assert first.classifier.weight[3].isfinite().all()
    assert embedded.class_names(WNIDS, NAMES) == ["goldfish", "Egyptian cat", "frying pan", "made up"]


def test_it_learns_and_the_file_holds_what_was_measured(whole, tmp_path, run):
    out = tmp_path / "net"
    code, said, err = run("train", "tiny-imagenet", "--data", whole, "--out", out, *OPTIONS, "--epochs", "4")
    assert (code, err) == (0, "")
    assert len(said.splitlines()) == 5
    log = [json.loads(line) for line in out.with_suffix(".log.jsonl").read_text().splitlines()]
    assert log[-1]["train_loss"] < 0.8 * log[0]["train_loss"]
    told = notes(out.with_suffix(".safetensors"))
    assert float(told["accuracy_float32"]) == pytest.approx(log[-1]["test_accuracy"], abs=1e-4)
    wanted = {"dataset": "Tiny-ImageNet", "network": "efficientnet_lite0", "size": "32", "classes": "4", "lr": "0.01"}
    assert wanted.items() <= told.items()
    assert (told["wnids"], json.loads(told["mean"]), told["test_images"]) == (",".join(WNIDS), [0.498] * 3, "8")
    weights = load_file(out.with_suffix(".safetensors"))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    model = load_model("efficientnet_lite0_tiny_imagenet", weights=out.with_suffix(".safetensors"))
    assert (model.size, model.labels) == ((32, 32), ["goldfish", "Egyptian cat", "frying pan", "made up"])
    val = mg.read_tiny_imagenet(whole, "val")
    x = torch.stack([model.preprocess(read_image(picture)) for picture in val.pictures])
    right = (model(x).argmax(1).numpy() == val.labels).mean()
    assert right == pytest.approx(float(told["accuracy_stored"]), abs=1e-4)


def test_resumed_is_straight_bit_for_bit(whole, tmp_path, run):
    command = ["train", "tiny-imagenet", "--data", whole, *OPTIONS]
    run(*command, "--out", tmp_path / "straight")
    stopped = [*command, "--out", tmp_path / "net", "--limit-seconds", "0"]
    assert [run(*stopped)[0] for _ in range(3)] == [1, 1, 0]
    ours, theirs = (load_file(tmp_path / f"{name}.safetensors") for name in ("net", "straight"))
    assert same(ours, theirs)
    assert notes(tmp_path / "net.safetensors") == notes(tmp_path / "straight.safetensors")
    code, _, err = run(*stopped, "--size", "64")
    assert code == 2
    assert "size 32 instead of 64" in err


def test_training_leaves_random_states(whole):
    from moreaugrad.training.files import tiny_arrays

    torch.rand(1)
    before = torch.get_rng_state(), random.getstate()
    training = Training(FineTuning(wnids=WNIDS, size=32, batch=16, epochs=1), tiny_arrays(whole), CPU)
    training.advance()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_one_step_is_the_written_out_one():
    """One batch, warm-up none: w - lr (1 + m) (gradient + decay w), on labels of which a tenth is spread."""
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (8, 64, 64, 3), dtype=np.uint8), (np.arange(8) % 4).astype(np.uint8)
    recipe = FineTuning(wnids=WNIDS, size=32, batch=8, epochs=1, warm_up=0, weight_decay=0.1)
    training, twin = (Training(recipe, Arrays(x, y, x[:4], y[:4]), CPU) for _ in range(2))
    order = torch.randperm(8, generator=twin.generator)
    seen = normalised(zoom_and_flip(twin.x[order], twin.generator, 32), FineTuning.scale)
    logits = twin.network.train()(seen).log_softmax(1)
    loss = -(0.9 * logits.gather(1, twin.y[order][:, None])[:, 0] + 0.1 * logits.mean(1)).mean()
    names, weights = zip(*twin.network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, weights)
    assert training.advance()["train_loss"] == pytest.approx(loss.item(), abs=1e-5)
    after = dict(training.network.named_parameters())
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        decay = 0.1 if weight.ndim > 1 else 0.0
        wanted = weight - recipe.rate(0.5) * 1.9 * (gradient + decay * weight)
        torch.testing.assert_close(after[name], wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "missing"], "nothing there"),
        (["--size", "16"], "size must be at least 32"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--lr", "0"], "lr must be a positive"),
        (["--out", "folder.safetensors"], "--out must be a file"),
        (["--device", "nonsense"], "device must be one that works here"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line(whole, tmp_path, run, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("folder.safetensors").mkdir()
    code, _, err = run("train", "tiny-imagenet", "--data", whole, "--out", "net", *OPTIONS, *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert words in err


def test_a_broken_picture_is_named_by_the_command(own, tmp_path, run):
    (own / "train" / WNIDS[2] / "images" / f"{WNIDS[2]}_3.JPEG").write_bytes(b"")
    code, _, err = run("train", "tiny-imagenet", "--data", own, "--out", tmp_path / "net", *OPTIONS)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"{WNIDS[2]}_3.JPEG" in err


def test_defaults_depend_on_the_device(monkeypatch, whole):
    from moreaugrad.training import files as training_files

    found = []
    monkeypatch.setattr(training_files, "trained", lambda recipe, *rest: found.append(recipe) or 0)
    monkeypatch.setattr(training_files, "best_device", torch.device)
    for device in ("cpu", "cuda"):
        train_tiny_imagenet({"batch": None, "lr": None}, training_files.Order(whole, device=device), mg)
    assert [recipe.batch for recipe in found] == [64, 256]
    assert found[1].lr == pytest.approx(4 * found[0].lr)
    assert found[0].wnids == WNIDS


def test_weights_that_do_not_fit(tmp_path):
    name = "efficientnet_lite0_tiny_imagenet"
    state = {key: tensor.contiguous() for key, tensor in load_model(name).network.state_dict().items()}
    save_file(state, tmp_path / "good.safetensors")  # says nothing of itself: the 200 classes at 128 pixels
    model = load_model(name, weights=tmp_path / "good.safetensors")
    assert (model.size, len(model.labels)) == ((128, 128), 200)
    save_file(load_model("efficientnet_lite0").network.state_dict(), tmp_path / "imagenet.safetensors")
    with pytest.raises(ValueError, match=r"classifier.weight \(1000, 1280\) for \(200, 1280\)"):
        load_model(name, weights=tmp_path / "imagenet.safetensors")
    save_file(load_model("resnet18_softplus").network.state_dict(), tmp_path / "resnet.safetensors")
    with pytest.raises(ValueError, match="weights must fit the model"):
        load_model(name, weights=tmp_path / "resnet.safetensors")
    for told in ({"size": "large"}, {"size": "8"}, {"labels": "a, b"}, {"labels": "3"}, {"labels": "[]"}):
        save_file(state, tmp_path / "told.safetensors", told)
        with pytest.raises(ValueError, match=r"must say their size in pixels, at least 32, and their labels"):
            load_model(name, weights=tmp_path / "told.safetensors")
    save_file(state, tmp_path / "told.safetensors", {"labels": '["a", "b"]'})
    with pytest.raises(ValueError, match=r"\(200, 1280\) for \(2, 1280\)"):
        load_model(name, weights=tmp_path / "told.safetensors")


def test_random_weights_and_own_labels():
    model = load_model("efficientnet_lite0_tiny_imagenet", weights="random", labels=["a", "b"])
    assert model(torch.zeros(1, 3, 128, 128)).shape == (1, 2)
    with pytest.raises(ValueError, match="2 labels for 200 outputs"):
        load_model("efficientnet_lite0_tiny_imagenet", labels=["a", "b"])


@pytest.mark.gpu
def test_on_a_gpu_the_pixels_are_those_of_the_cpu():
    pixels = torch.randint(0, 256, (9, 64, 64, 3), dtype=torch.uint8)
    assert torch.equal(resized(pixels.cuda(), 128).cpu(), resized(pixels, 128))
    whole = zoom_and_flip(pixels.cuda(), torch.Generator("cuda").manual_seed(0), 128)
    assert whole.shape == (9, 128, 128, 3)


@pytest.mark.gpu
def test_on_a_gpu_compiled_and_resumed(whole, tmp_path):
    """In processes of their own: the compiler cannot trace the checks of shapes that tests put around functions."""
    code = "from moreaugrad.cli.app import main; main()"
    command = [sys.executable, "-c", code, "train", "tiny-imagenet", "--data", str(whole), *OPTIONS]
    command += ["--out", str(tmp_path / "net"), "--limit-seconds", "0", "--device", "cuda"]
    codes = [subprocess.run(command, capture_output=True, check=False).returncode for _ in range(3)]
    assert codes == [1, 1, 0]
    told = notes(tmp_path / "net.safetensors")
    model = load_model("efficientnet_lite0_tiny_imagenet", weights=tmp_path / "net.safetensors", device="cuda")
    val = mg.read_tiny_imagenet(whole, "val")
    x = torch.stack([model.preprocess(read_image(picture)) for picture in val.pictures])
    right = (model(x).argmax(1).cpu().numpy() == val.labels).mean()
    assert right == pytest.approx(float(told["accuracy_stored"]), abs=1e-4)


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
