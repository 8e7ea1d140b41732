"""Small copies of the paper's data sets in every layout, and settings that use them with a small network."""

import zipfile
from io import BytesIO

import numpy as np
from PIL import Image

from paper.settings import Settings

SMALL = "paper_network:Small"
random = np.random.default_rng(5)


def pictures(count, side):
    return random.integers(0, 255, (count, side, side, 3), dtype=np.uint8)


def jpeg(pixels):
    stored = BytesIO()
    Image.fromarray(pixels).save(stored, "JPEG", quality=95)
    return stored.getvalue()


def make_npz(folder, count=12, classes=10):
    folder.mkdir(parents=True, exist_ok=True)
    x, y = pictures(count, 32), np.arange(count, dtype=np.uint8) % classes
    np.savez(folder / "cifar10.npz", x_train=x[:1], y_train=y[:1], x_test=x, y_test=y)
    return x


def make_strips(folder, strips=3, each=4):
    (folder / "test").mkdir(parents=True)
    x = pictures(strips * each, 32)
    for number, some in enumerate(np.split(x, strips)):
        Image.fromarray(some.reshape(-1, 32, 3)).save(folder / "test" / f"{number:03d}.webp", lossless=True)
    np.save(folder / "test_labels.npy", (np.arange(len(x)) % 10).astype(np.uint8))
    np.save(folder / "test_index.npy", 2 * np.arange(len(x)))
    (folder / "classes.txt").write_text("\n".join("abcdefghij"))
    return x


def boxed(box, side=64):
    """White in the box (its last pixels count), black elsewhere."""
    found = np.zeros((side, side, 3), np.uint8)
    found[box[1] : box[3] + 1, box[0] : box[2] + 1] = 255
    return found


BOXES = [(8, 16, 39, 55), (0, 0, 63, 20), (20, 4, 30, 12)]


def make_tiny(folder, boxes=BOXES):
    (folder / "val" / "images").mkdir(parents=True)
    wnids = [f"n{number:08d}" for number in range(len(boxes))]
    (folder / "wnids.txt").write_text("\n".join(wnids))
    (folder / "words.txt").write_text("".join(f"{wnid}\tthing {wnid}\n" for wnid in wnids))
    lines = []
    for number, box in enumerate(boxes):
        (folder / "val" / "images" / f"val_{number}.JPEG").write_bytes(jpeg(boxed(box)))
        lines.append("\t".join([f"val_{number}.JPEG", wnids[number], *map(str, box)]) + "\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


def make_archive(folder, boxes=BOXES):
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "val.zip", "w") as archive:
        for number, box in enumerate(boxes):
            archive.writestr(f"n{number:08d}/val_{number}.JPEG", jpeg(boxed(box)))
    rows = [f"n{n:08d}/val_{n}.JPEG,n{n:08d},{n},thing,{','.join(map(str, box))}\n" for n, box in enumerate(boxes)]
    (folder / "labels.csv").write_text("file,wnid,class_index,name,box_x0,box_y0,box_x1,box_y1\n" + "".join(rows))
    classes = [f"{n},n{n:08d},thing n{n:08d},{n}\n" for n in range(len(boxes))]
    (folder / "classes.csv").write_text("class_index,wnid,name,imagenet1k_index\n" + "".join(classes))


def make_photos(folder, count=4):
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        (folder / f"photo_{number}.JPEG").write_bytes(jpeg(pictures(1, 40)[0]))
        rows.append(f"photo_{number}.JPEG,n{number},{number},name {number}\n")
    (folder / "labels.csv").write_text("file,wnid,class_index,name\n" + "".join(rows))


MADE = {
    "cifar10": {"npz": make_npz, "strips": make_strips},
    "tiny_imagenet": {"published": make_tiny, "archive": make_archive},
    "imagenet": {"photos": make_photos},
}


def make_settings(folder, **more):
    """For small CIFAR-10 and photos below a folder, on a small network."""
    if not (folder / "data").is_dir():
        make_npz(folder / "data")
        make_photos(folder / "data" / "photos")
    given = {"models": {"cifar10": SMALL, "imagenet": SMALL}, "datasets": ("cifar10", "imagenet")}
    return Settings(folder / "data", folder / "out", **{"quick": True, "device": "cpu"} | given | more)
