"""The same few small pictures as every kind of source that a bulk run understands."""

import csv
import io
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

ROWS = 5
LABELS = [0, 1, 1, 0, 2]


def picture(number, side=32):
    """Pixels that tell which picture it is."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def encoded(number):
    handle = io.BytesIO()
    picture(number).save(handle, "png")
    return handle.getvalue()


def write_folder(folder):
    for number, label in enumerate(LABELS):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        (folder / f"class{label}" / f"{number}.png").write_bytes(encoded(number))
    return folder


def file_names():
    return [f"class{label}/{number}.png" for number, label in enumerate(LABELS)]


def write_csv(path, columns):
    with path.open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))
    return path


def write_parquet(path, columns, rows_per_group=2):
    pq.write_table(pa.table(columns), path, row_group_size=rows_per_group)
    return path


def write_tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_shards(folder):
    """Two shards, with three pictures and two."""
    members = [
        (f"{n:04}.{part}", text)
        for n in range(ROWS)
        for part, text in (("png", encoded(n)), ("cls", b"%d" % LABELS[n]))
    ]
    write_tar(folder / "train-000.tar", members[:6])
    write_tar(folder / "train-001.tar", members[6:])
    return folder


def hugging_face(**more):
    import datasets

    columns = {"image": list(map(picture, range(ROWS))), "label": LABELS, **more}
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "fox"])}
    kinds = {name: datasets.Value("string" if isinstance(values[0], str) else "int64") for name, values in more.items()}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features | kinds))


def write_npz(path):
    images = np.stack([np.asarray(picture(number)) for number in range(ROWS)])
    np.savez(path, x_train=images[:1], y_train=np.array(LABELS[:1]), x_test=images, y_test=np.array(LABELS))
    return path


class Pairs(torch.utils.data.Dataset):
    """As torchvision's datasets are."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return picture(row), LABELS[row]


class Unpicklable(Pairs):
    def __init__(self):
        self.open = lambda: None


def make_unpicklable():
    return Unpicklable()


FACTORY = "image_sources:make_unpicklable"  # the folder of this file is on the path of the tests


def folder(place):
    return write_folder(place / "photos")


def csv_manifest(place):
    write_folder(place)
    names = file_names()
    names[1] = str(place / names[1])  # absolute
    columns = {"path": names, "key": list("abcde"), "truth": LABELS, "target": [7, "", "tabby", "7.0", " 9 "]}
    return write_csv(place / "m.csv", columns)


def parquet_manifest(place):
    return write_parquet(write_folder(place) / "m.parquet", {"path": file_names(), "truth": LABELS})


def parquet_bytes(place):
    columns = {"bytes": list(map(encoded, range(ROWS))), "truth": [*map(float, LABELS)]}
    return write_parquet(place / "m.parquet", columns)


def saved(place):
    hugging_face(id=list("vwxyz")).with_format("torch").save_to_disk(place / "hf_data")
    return place / "hf_data"


def dicts(_place):
    return [{"img": np.asarray(picture(row)), "label": LABELS[row], "target": row} for row in range(ROWS)]


def braces(place):
    return str(write_shards(place) / "train-{000..001}.tar")


def write_table_of_files(place):
    return write_csv(place / "m.csv", {"path": file_names()})
