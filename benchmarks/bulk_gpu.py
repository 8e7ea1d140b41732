"""Whether `bulk` keeps one GPU as busy as the engine itself does: photos per second of both, and where time went.

Makes as many different files as asked for out of a folder of photos, turned and mirrored. Explains some of them as one
batch that is in memory already, then all by `bulk`, with one method and one seed per photo, and compares the maps of
both. What the engine costs per photo does not depend on their number (benchmarks/results/scaling.json).

python -m benchmarks.bulk_gpu --data PHOTOS [--images 2048] [--engine 512] [--budget balanced] [--precision float16]
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

import moreaugrad as mg
from benchmarks import record
from moreaugrad.api import Explainer
from moreaugrad.bulk_jobs.engines.base import Event, Finished, Progress
from moreaugrad.bulk_jobs.run import RunState
from moreaugrad.bulk_jobs.worker import BATCH, row_seed

TURNS = (None, *Image.Transpose)  # eight: so many files are made of one photo
SIDE = 500  # pixels of the longer side of a file, as most of ImageNet's have


def main() -> None:
    args = record.arguments(
        __doc__, images=2048, engine=512, budget="balanced", precision="float16", model="efficientnet_lite0"
    )
    budget = int(args.budget) if args.budget.isdecimal() else args.budget
    options = {"sparsity": 0.05, "budget": budget, "precision": args.precision, "compile": args.device != "cpu"}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(args.data, folder / "photos", args.images)
        engine, maps = run_engine(args.model, folder / "photos", args.engine, options, args.device)
        print(engine, flush=True)
        found, job = run_bulk(args.model, folder, options, args.device)
        both = [(job[key].map, values) for key, values in maps.items()]
        alike = [float((one * two).sum() / np.sqrt((one**2).sum() * (two**2).sum())) for one, two in both]
    found |= {"errors": len(job.errors), "least_cosine_with_engine": min(alike)}
    ratio = found["images_per_second"] / engine["images_per_second"]
    results = {"images": args.images, "model": args.model, "options": options, "engine": engine, "bulk": found}
    print(found, f"ratio {ratio:.3f}", sep="\n", flush=True)
    record.store("bulk_gpu", args.device, results | {"ratio": ratio}, args.out)


def write_photos(source: Path, folder: Path, count: int) -> None:
    """Files that differ: each photo as it is, mirrored, turned, ..."""
    folder.mkdir()
    photos = sorted(path for path in source.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if count > len(TURNS) * len(photos):
        raise SystemExit(f"--images must be at most {len(TURNS)} times the {len(photos)} photos of --data, got {count}")

    def write(number: int) -> None:
        turn = TURNS[number // len(photos)]
        with Image.open(photos[number % len(photos)]) as file:
            photo = file.convert("RGB") if turn is None else file.convert("RGB").transpose(turn)
        scale = SIDE / max(photo.size)
        photo = photo.resize((round(photo.width * scale), round(photo.height * scale)))
        photo.save(folder / f"{number:05d}.jpg", quality=90)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, range(count)))


def run_engine(
    model: str, photos: Path, count: int, options: dict[str, Any], device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first photos as one batch on the device, and its maps by the names of the files."""
    explainer = Explainer(mg.load_model(model, device=device), "sparse_moreau", options)
    paths = sorted(photos.iterdir())[:count]
    began = time.perf_counter()
    x = torch.stack([explainer.read(path)[0] for path in paths])
    reading, x = time.perf_counter() - began, x.to(device)
    seeds = [row_seed(0, path.name) for path in paths]
    some = min(len(x), BATCH.get(torch.device(device).type, 16))
    _, first = record.timed(device, partial(explainer.method.explain, x[:some], seeds=seeds[:some]))
    found, seconds = record.timed(device, partial(explainer.method.explain, x, seeds=seeds))
    maps = dict(zip((path.name for path in paths), found.map.float().numpy(force=True), strict=True))
    spent = int(found.gradients.sum())
    rates = {"images": len(x), "images_per_second": len(x) / seconds, "gradients_per_second": spent / seconds}
    how = {name: found.options[name] for name in ("precision", "compile")}
    return {**rates, **how, "seconds": seconds, "seconds_first_batch": first, "seconds_to_read_alone": reading}, maps


def run_bulk(model: str, folder: Path, options: dict[str, Any], device: str) -> tuple[dict[str, Any], mg.BulkMaps]:
    """The same photos from files into parts. The rate is that after the first batch, which waits for the compiler."""
    times: list[tuple[float, int]] = []
    phases: list[dict[str, float]] = []

    def watch(state: RunState, event: Event | None) -> None:
        if isinstance(event, Progress):
            times.append((time.perf_counter(), event.images))
        if isinstance(event, Finished):
            phases.append({each: getattr(event.done, each) for each in ("waiting", "explaining", "writing")})
            ends.append(time.perf_counter())

    ends: list[float] = []
    began = time.perf_counter()
    run = mg.RunOptions(workers=1)
    maps = mg.bulk(model, folder / "photos", folder / "maps", device=device, run=run, watch=watch, **options)
    total = time.perf_counter() - began
    steady = ends[-1] - times[0][0]
    images = sum(count for _, count in times) - times[0][1]
    found: dict[str, Any] = {
        "images_per_second": images / steady,
        "seconds": total,
        "seconds_after_first_batch": steady,
    }
    found |= {"seconds_first_batch": times[0][0] - began, "images_per_second_in_all": len(maps) / total}
    sums = {f"seconds_{each}": sum(phase[each] for phase in phases) for each in phases[0]}
    return found | sums | {"parts": len(phases), "precision": maps.job["configuration"]["options"]["precision"]}, maps


if __name__ == "__main__":
    main()
