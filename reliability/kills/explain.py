"""Whether `moreaugrad explain` loses or doubles anything when it is killed, and what broken files do to a folder.

Explains a folder of small photos undisturbed, then again while processes are killed by signal 9 at random moments,
two at a time in the last rounds, and compares; then a folder with broken files among good ones.

python -m reliability.kills.explain [--files 300] [--kills 20] [--broken 50] [--seed 0]
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import record

COMMAND = ["explain", "--method", "gradcam", "--model", "resnet18_softplus", "--weights", "random", "--device", "cpu"]
TOGETHER = 3  # the last rounds, with two processes


def main() -> None:
    args = record.arguments(__doc__, data=False, files=300, kills=20, broken=50, seed=0)
    chance = random.Random(args.seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_photos(folder / "photos", args.files, args.seed)
        began = time.perf_counter()
        start("photos", folder / "undisturbed").wait()
        whole = time.perf_counter() - began
        rounds = disturb(folder, args.files, args.kills, chance)
        compared = compare(folder / "undisturbed", folder / "killed")
        make_photos(folder / "mixed", args.files - args.broken, args.seed)
        break_files(folder / "mixed", args.broken)
        broken = explain_broken(folder)
        page = (folder / "undisturbed" / "index.html").stat().st_size
    results = {"files": args.files, "kills": args.kills, "seconds_undisturbed": whole, "rounds": rounds}
    results |= {"compared": compared, "page_bytes": page, "broken": broken}
    print(json.dumps({"compared": compared, "broken": broken}, indent=1))
    record.store("kill_resume", "cpu", results, args.out)


def make_photos(folder: Path, count: int, seed: int) -> None:
    """Coloured waves, each its own, as small JPEG files."""
    folder.mkdir()
    numbers = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:96, 0:128] / 20
    for i in range(count):
        a, b, shift = numbers.uniform(-3, 3, (3, 3))
        waves = np.sin(rows[..., None] * a + columns[..., None] * b + shift)
        Image.fromarray(np.uint8(127.5 + 127.5 * waves)).save(folder / f"photo{i:04d}.jpg")


def break_files(folder: Path, count: int) -> None:
    """Files that are no images, or only begin as ones, under the names of images; `count` of them."""
    good = next(folder.glob("*.jpg")).read_bytes()
    wholes = {}
    for kind in ("png", "gif", "webp", "tiff", "bmp"):
        Image.linear_gradient("L").convert("RGB").save(stored := BytesIO(), kind)
        wholes[kind] = stored.getvalue()
    contents = [("jpg", b""), ("png", b"junk"), ("jpg", b"<html>not found</html>"), ("jpg", bytes(5000))]
    contents += [("jpg", good[: len(good) // 2]), ("jpg", good[:20]), ("png", good[:400]), ("gif", b"GIF89a")]
    contents += [(kind, whole[: len(whole) // 3]) for kind, whole in wholes.items()]
    contents += [(kind, whole[:12]) for kind, whole in wholes.items()]
    contents += [("png", wholes["png"][:60] + b"\0" * 40 + wholes["png"][100:]), ("tif", b"II*\0\xff\xff\xff\xff")]
    for i in range(count):
        ending, content = contents[i % len(contents)]
        (folder / f"broken{i:03d}.{ending}").write_bytes(content)
    if count:  # not counted: links that lead nowhere are no files
        (folder / "gone.png").symlink_to("nowhere.png")


def start(photos: str, out: Path, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """`moreaugrad explain` in a process of its own."""
    program = [sys.executable, "-c", "from moreaugrad.cli.app import main; main()"]
    return subprocess.Popen(
        [*program, *COMMAND, photos, "--out", out.name],
        cwd=out.parent,
        text=True,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def count_lines(out: Path) -> int:
    path = out / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def disturb(folder: Path, files: int, kills: int, chance: random.Random) -> list[dict[str, Any]]:
    """Start, kill after some more images, start again; at the end let two processes finish. What each round did."""
    out, rounds = folder / "killed", []
    for i in range(kills + 1):
        last = i == kills
        processes = [start("photos", out) for _ in range(2 if i >= kills - TOGETHER else 1)]
        before = count_lines(out)
        enough = before + chance.randint(0, 2 * (files - before) // (kills + 1 - i))
        while not last and all(each.poll() is None for each in processes) and count_lines(out) < enough:
            time.sleep(0.005)
        if not last:
            time.sleep(chance.uniform(0, 3 if enough == before else 0.2))
            for each in processes:
                each.kill()
                time.sleep(chance.uniform(0, 0.1))
        codes = [each.wait() for each in processes]
        drafts = len(list(out.glob(".*"))) if out.is_dir() else 0
        rounds.append({"lines_before": before, "lines_after": count_lines(out), "codes": codes, "drafts": drafts})
        print(i, rounds[-1], flush=True)
    return rounds


def compare(wanted: Path, found: Path) -> dict[str, Any]:
    """Records, files, and whether they are the same."""
    lines = [json.loads(line) for line in (found / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    readable = 0
    for line in lines:
        with Image.open(found / line["files"]["png"]) as picture:
            picture.load()
            readable += 1
    same = {}
    for ending in ("npz", "png"):
        digests = [
            {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in each.glob(f"*.{ending}")}
            for each in (wanted, found)
        ]
        same[f"{ending}_files"] = len(digests[1])
        same[f"{ending}_same_names_and_bytes"] = digests[0] == digests[1]
    return {
        "records": len(lines),
        "different_ids": len({line["id"] for line in lines}),
        "different_images": len({line["file"] for line in lines}),
        "failed": sum("error" in line for line in lines),
        "pictures_readable": readable,
        "hidden_files_left": len(list(found.glob(".*"))),
    } | same


def explain_broken(folder: Path) -> dict[str, Any]:
    """A folder with broken files, twice: what is done, what fails, and that the second run adds nothing."""
    codes, counts = [], []
    for _ in range(2):
        process = start("mixed", folder / "out", subprocess.PIPE)
        text, _ = process.communicate()
        codes.append(process.returncode)
        counts.append(count_lines(folder / "out"))
    lines = [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    failed = [line for line in lines if "error" in line]
    return {
        "codes": codes,
        "lines": counts,
        "done": len(lines) - len(failed),
        "failed": len(failed),
        "tracebacks": text.count("Traceback"),
        "last_line": text.splitlines()[-1].split(" -> ")[0],
    }


if __name__ == "__main__":
    main()
