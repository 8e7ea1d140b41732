"""Folders of bulk jobs, made of rows that a test chooses."""

import json

import numpy as np

from moreaugrad.bulk_jobs.folder import FORMAT, VERSION, split_parts
from moreaugrad.bulk_jobs.parts import BulkRow, write_part
from moreaugrad.bulk_jobs.sources import Item
from moreaugrad.models.classifier import CentreCrop

VIEW = CentreCrop((8, 8), (8, 8), (0.5,) * 3, (1.0,) * 3)
RUN = {"began": "2030-01-02T03:04:05+00:00", "command": "", "engine": "serial", "shard": None, "device": "cpu"}


class Pictures:
    """Pictures by key."""

    def __init__(self, pictures):
        self.pictures, self.keys = pictures, list(pictures)

    def read(self, row):
        return Item(self.pictures[self.keys[row]], None, None)

    def describe(self):
        return {"kind": "pictures", "images": len(self.keys)}


def spread_map(seed=0, shape=(3, 8, 8)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def make_row(row, **known):
    """A row with a map, unless it has an error."""
    facts = {"key": f"image {row}.png", "target": 0, "label": "cat", "score": 1.5, "kept": 1.0, "gradients": 4}
    facts |= {"relative_error": 0.1, "seconds": 0.5, "seed": row, "map": spread_map(row)}
    if "error" in known:
        facts = {"key": facts["key"]}
    return BulkRow(row=row, **facts | known)


def write_job(folder, rows, part_size=4, total=None, **configuration):
    """A folder with these rows, which are the first ones of the source."""
    known = {"source": {"kind": "folder", "images": total or len(rows)}, "model": "net", "view": repr(VIEW)}
    known |= {"method": "gradient", "options": {"samples": 4, "sigma": None}, "target": None, "seed": 3}
    known |= {"part_size": part_size, **configuration}
    run = RUN | {"versions": {"moreaugrad": "1.2.3"}}
    folder.mkdir(exist_ok=True)
    about = {"format": FORMAT, "version": VERSION, "configuration": known, "runs": [run]}
    (folder / "job.json").write_text(json.dumps(about))
    for part in split_parts(len(rows), part_size):
        write_part(part.path(folder), [rows[row] for row in part.rows])
    return folder
