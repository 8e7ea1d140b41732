"""Tiny-ImageNet in two zip files -> its published layout, for `moreaugrad train tiny-imagenet --data OUT`.

    python3 tools/tiny_imagenet_folder.py COMPACT OUT

COMPACT holds classes.csv (wnid, name) and one or both of: train_100_per_class.zip with train_labels.csv (file, wnid),
val.zip with labels.csv (file, wnid, box_x0, box_y0, box_x1, box_y1). OUT is whole at the end, or not there.
Copies bytes; needs nothing but Python.
"""

from __future__ import annotations

import csv
import os
import shutil
import sys
import zipfile
from pathlib import Path, PurePosixPath

HALVES = {"train": ("train_100_per_class.zip", "train_labels.csv"), "val": ("val.zip", "labels.csv")}
BOX = ("box_x0", "box_y0", "box_x1", "box_y1")

Rows = list[dict[str, str]]


def read_rows(path: Path, columns: tuple[str, ...]) -> Rows:
    """A table that has these columns."""
    if not path.is_file():
        raise SystemExit(f"{path} must be there, got nothing")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or any(row.get(name) in (None, "") for row in rows for name in columns):
        raise SystemExit(f"{path} must have rows with {', '.join(columns)}")
    return rows


def unpack(archive: Path, rows: Rows, place: dict[str, Path]) -> None:
    """Each member named by a row to its place."""
    try:
        with zipfile.ZipFile(archive) as pack:
            if missing := sorted({row["file"] for row in rows} - set(pack.namelist())):
                raise SystemExit(
                    f"{archive} must hold every file of its table, got {len(missing)} missing: {missing[:3]}"
                )
            for row in rows:
                place[row["file"]].write_bytes(pack.read(row["file"]))
    except zipfile.BadZipFile as error:
        raise SystemExit(f"{archive} must be a whole zip file: {error}") from None


def train(archive: Path, rows: Rows, out: Path) -> None:
    """train/<wnid>/images/<file>."""
    for wnid in {row["wnid"] for row in rows}:
        (out / "train" / wnid / "images").mkdir(parents=True)
    unpack(archive, rows, {row["file"]: out / "train" / row["wnid"] / "images" / base(row) for row in rows})


def val(archive: Path, rows: Rows, out: Path) -> None:
    """val/images/<file>, and a line for each in the order of their numbers."""
    images = out / "val" / "images"
    images.mkdir(parents=True)
    unpack(archive, rows, {row["file"]: images / base(row) for row in rows})
    ordered = sorted(rows, key=lambda row: (len(base(row)), base(row)))
    lines = ["\t".join((base(row), row["wnid"], *(row[name] for name in BOX))) + "\n" for row in ordered]
    (out / "val" / "val_annotations.txt").write_text("".join(lines), encoding="utf-8")


def base(row: dict[str, str]) -> str:
    """The file's name without its folder."""
    return PurePosixPath(row["file"]).name


def convert(compact: Path, out: Path) -> None:
    """The halves that are there, then the lists of classes."""
    halves = [half for half, (archive, _) in HALVES.items() if (compact / archive).is_file()]
    if not halves:
        raise SystemExit(f"{compact} must hold {' or '.join(archive for archive, _ in HALVES.values())}, got neither")
    classes = sorted(read_rows(compact / "classes.csv", ("wnid", "name")), key=lambda row: row["wnid"])
    known = {row["wnid"] for row in classes}
    for half in halves:
        archive, table = HALVES[half]
        rows = read_rows(compact / table, ("file", "wnid", *(BOX if half == "val" else ())))
        if unknown := sorted({row["wnid"] for row in rows} - known):
            raise SystemExit(f"{compact / table} must have the classes of classes.csv, got {unknown[:3]}")
        if len({(row["wnid"] if half == "train" else "", base(row)) for row in rows}) != len(rows):
            raise SystemExit(f"{compact / table} must name each file once, got some twice")
        {"train": train, "val": val}[half](compact / archive, rows, out)
    (out / "wnids.txt").write_text("".join(f"{row['wnid']}\n" for row in classes), encoding="utf-8")
    (out / "words.txt").write_text("".join(f"{row['wnid']}\t{row['name']}\n" for row in classes), encoding="utf-8")


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise SystemExit("usage: python3 tools/tiny_imagenet_folder.py COMPACT OUT")
    compact, out = map(Path, arguments)
    if out.exists():
        raise SystemExit(f"{out} must not be there yet; remove it, or name another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        draft.mkdir()
        convert(compact, draft)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
