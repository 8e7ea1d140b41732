"""Rates of `bulk` with one and two workers, by local processes and by Ray; sizes and reading of what it writes.

Explains 1,000 small images and 64 photos by each engine and compares all rows bit by bit. Then 1,000 maps of photos'
size, made of the real ones by flips, shifts and small changes, are written and read, and 100,000 rows are queried.

python -m benchmarks.bulk --data PHOTOS --cifar10 FOLDER [--small 1000] [--photos 64] [--maps 1000] [--rows 100000]
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
from PIL import Image

import moreaugrad as mg
from benchmarks import record
from moreaugrad.bulk_jobs.engines.base import Event, Finished
from moreaugrad.bulk_jobs.folder import Part, join_job
from moreaugrad.bulk_jobs.parts import BulkRow, read_rows, write_part
from moreaugrad.bulk_jobs.run import RunState
from moreaugrad.bulk_jobs.worker import Done

RUNS = (("local", 1), ("local", 2), ("ray", 2))
PART, READS = 64, 200
QUERY = "select label, count(*), avg(score), avg(kept) from '{}/part-*.parquet' group by label order by 2 desc"


def main() -> None:
    args = record.arguments(__doc__, cifar10="", small=1000, photos=64, maps=1000, rows=100_000)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        if args.cifar10:
            write_small(Path(args.cifar10), folder / "small", args.small)
            found["cifar10"] = compare_engines(folder, folder / "small", "lipschitz_cifar10")
        photos = sorted(map(str, args.data.glob("*.*")))
        photos = [each for each in photos if each.lower().endswith(("jpg", "jpeg", "png"))][: args.photos]
        found["photos"] = compare_engines(folder, photos, "efficientnet_lite0")
        real = [row.map for row in mg.open_maps(folder / "efficientnet_lite0 local 1") if row.map is not None]
        found["storage"] = measure_storage(folder, [each for each in real if each is not None], args.maps)
        found["query"] = measure_query(folder, args.rows)
    record.store("bulk", "cpu", found, args.out)


def write_small(source: Path, folder: Path, count: int) -> None:
    """CIFAR-10's test images, from strips of 500, as single files."""
    folder.mkdir()
    strips = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(source.glob("test/*.webp"))]
    every = np.concatenate(strips).reshape(-1, 32, 32, 3)
    for number in range(count):
        Image.fromarray(every[number * len(every) // count]).save(folder / f"{number:05d}.png")


def compare_engines(folder: Path, source: Any, model: str) -> list[dict[str, Any]]:
    """One job by every engine: seconds, rates, and whether all rows are the same."""
    lines = []
    for engine, workers in RUNS:
        seen: list[tuple[RunState, float]] = []
        done: list[Done] = []

        def watch(state: RunState, event: Event | None, seen: Any = seen, done: Any = done) -> None:
            seen.append((state, state.seconds))
            if isinstance(event, Finished):
                done.append(event.done)

        run = mg.RunOptions(engine=engine, workers=workers)
        began = time.perf_counter()
        maps = mg.bulk(
            *(model, source, folder / f"{model} {engine} {workers}"),
            sparsity=0.05,
            budget="fast",
            device="cpu",
            run=run,
            watch=watch,
        )
        seconds, (state, end) = time.perf_counter() - began, seen[-1]
        working = end - (state.started or 0)
        solving = sum(row.seconds or 0 for row in maps)
        line: dict[str, Any] = {"engine": engine, "workers": workers, "images": len(maps), "errors": len(maps.errors)}
        line |= {"seconds": seconds, "seconds_to_first_worker": seconds - working, "seconds_of_work": working}
        line |= {"images_per_second": len(maps) / working, "gradients_per_second": state.gradients / working}
        busy = sum(each.waiting + each.explaining + each.writing for each in done)
        line |= {"overhead_ms_per_image": 1000 * (busy - solving) / len(maps)}  # images, rows and files
        line |= {"idle_ms_per_image": 1000 * (working * workers - busy) / len(maps), "digest": maps.digest()}
        print(json.dumps(line), flush=True)
        lines.append(line)
    for line in lines:
        line["times_one_worker"] = line["images_per_second"] / lines[0]["images_per_second"]
        line["same_rows"] = line["digest"] == lines[0]["digest"]
    return lines


def measure_storage(folder: Path, real: list[Any], maps: int) -> dict[str, Any]:
    """Bytes of many maps, exact and half, and milliseconds to read one of them."""
    chance = np.random.default_rng(0)
    found: dict[str, Any] = {"maps": maps}
    rows = [make_row(number, real, chance) for number in range(maps)]
    found["kept"] = float(np.mean([row.kept for row in rows]))
    for name, half in (("exact", False), ("half", True)):
        place = folder / name
        place.mkdir()
        join_job(place, {"source": {"images": maps}, "part_size": PART}, {})
        began = time.perf_counter()
        for number in range(0, maps, PART):
            part = Part(number // PART, range(number, min(number + PART, maps)))
            write_part(part.path(place), rows[part.rows.start : part.rows.stop], half)
        seconds = time.perf_counter() - began
        paths = sorted(place.glob("part-*"))
        began = time.perf_counter()
        back = [row for path in paths for row in read_rows(path)]
        reading = time.perf_counter() - began
        same = all(np.array_equal(a.map != 0, b.map != 0) for a, b in zip(rows, back, strict=True))
        found[name] = {
            "megabytes": sum(path.stat().st_size for path in paths) / 1e6,
            "seconds_to_write": seconds,
            "seconds_to_read": reading,
            "same_support": same,
            "same_values": all(np.array_equal(a.map, b.map) for a, b in zip(rows, back, strict=True)),
            "milliseconds_of_one": measure_reads(place, chance),
        }
    print(json.dumps(found), flush=True)
    return found


def make_row(number: int, real: list[Any], chance: np.random.Generator) -> BulkRow:
    """A real map, moved and changed a little, with its share of entries."""
    values = np.roll(real[number % len(real)], chance.integers(0, 224, 2), (1, 2))
    values = values[:, :, ::-1] if number % 2 else values
    values = (values * chance.uniform(0.9, 1.1, values.shape)).astype(np.float32)
    kept = float((values != 0).mean())
    return BulkRow(key=f"photo{number}.jpg", row=number, target=number % 10, score=1.0, kept=kept, map=values)


def measure_reads(place: Path, chance: np.random.Generator) -> dict[str, float]:
    """Milliseconds to read one map by its key, when the keys are known."""
    maps = mg.open_maps(place)
    keys = [maps.keys[number] for number in chance.integers(0, len(maps), READS)]
    times = []
    for key in keys:
        began = time.perf_counter()
        assert maps[key].key == key
        times.append(1000 * (time.perf_counter() - began))
    return {"median": statistics.median(times), "most": max(times)}


def measure_query(folder: Path, count: int) -> dict[str, Any]:
    """Seconds of a query over the columns of many rows that are no maps."""
    place, values = folder / "rows", np.zeros((1, 2, 2), np.float32)
    place.mkdir()
    for number in range(0, count, PART):
        part = Part(number // PART, range(number, min(number + PART, count)))
        rows = [
            BulkRow(key=f"{row}.jpg", row=row, target=row % 1000, label=f"class {row % 1000}", score=1.0, map=values)
            for row in part.rows
        ]
        write_part(part.path(place), rows)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        lines = duckdb.sql(QUERY.format(place)).fetchall()
        times.append(time.perf_counter() - began)
    assert sum(line[1] for line in lines) == count
    found = {"rows": count, "files": len(list(place.glob("part-*"))), "seconds_first": times[0], "seconds": min(times)}
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
