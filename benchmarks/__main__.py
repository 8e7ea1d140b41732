"""What a CPU measures in ten minutes, beside the stored figures of the same commands.

python -m benchmarks --data FOLDER [--parts waiting,cost] [--out build/bench]

To replace a stored figure, run its own benchmark by the command that is stored with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import record

QUICK = "gradient,integrated_gradients,smoothgrad,deeplift,cam,gradcam,gradcam_plus_plus"
PARTS = {
    "waiting": "--repeats 2",
    "memory": "--rows 0",
    "throughput": "--images 4 --budget 160 --models lite0,resnet50",
    "cost": f"--methods {QUICK} --images 1 --repeats 2 --long 20",
    "baselines": "--samples 256 --batches 8,16 --repeats 1",
}
WITHOUT_DATA = {"memory", "throughput"}
GIB = 2.0**30
MEASURED = ("seconds", "per_second", "times_faster", "peak_bytes")  # in names of figures; bytes are shown in GiB
LABELS = ("method", "quality", "model", "images", "rows")


def main() -> None:
    args = record.arguments(__doc__, parts=",".join(PARTS))
    out = args.out or Path("build/bench")
    print(f"{'':74s}{'stored':>10s}{'now':>10s}{'now/stored':>12s}")
    for name in args.parts.split(","):
        options = PARTS[name]
        data = [] if name in WITHOUT_DATA else ["--data", str(args.data)]
        command = [sys.executable, "-m", f"benchmarks.{name}", *data, "--device", "cpu", "--out", str(out)]
        subprocess.run([*command, *options.split()], check=True, stdout=subprocess.DEVNULL)
        before, now = read(record.RESULTS / f"{name}_cpu.json"), read(out / f"{name}_cpu.json")
        known = dict(find_measures(before))
        print(f"{name}: stored on {before.get('hardware', 'no machine')}, now {now['hardware']}")
        for place, value in find_measures(now):
            old = known.get(place)
            text = f"{'-':>10s}{value:10.3f}" if old is None else f"{old:10.3f}{value:10.3f}{value / old:12.2f}"
            print(f"  {place:72s}{text}", flush=True)


def read(path: Path) -> dict[str, Any]:
    """A stored result; nothing where there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def find_measures(found: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """What was measured in a result, by its place in it: of repeated seconds the best."""
    if isinstance(found, dict):
        label = " ".join(str(found[key]) for key in LABELS if key in found)
        for key, value in found.items():
            yield from find_measures(value, f"{place} {label} {key}".strip())
    elif isinstance(found, list) and found and isinstance(found[0], dict):
        for each in found:
            yield from find_measures(each, place.removesuffix("table").strip())
    elif any(word in place for word in MEASURED) and "all_seconds" not in place:
        value = min(found) if isinstance(found, list) and found else found
        if isinstance(value, int | float):
            yield " ".join(place.split()), value / (GIB if "bytes" in place and "second" not in place else 1.0)


if __name__ == "__main__":
    main()
