"""Cost of a map against the number of images, their size and the number of groups.

    python -m benchmarks.scaling --data FOLDER [--device cuda]

Working memory is the peak without the inputs and the results, which necessarily grow with the number of images.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record


def main() -> None:
    args = record.arguments(
        __doc__,
        budget=160,
        images="16,64,256,1024,2048",
        sizes="128,160,192,224,288",
        groups="4,8,16,32,56",
        photos=16,
        compile=True,
        precision="",
    )
    model, loaded = photos.load(args.data, args.photos, args.device)
    eager = {"budget": args.budget, "compile": False, "precision": args.precision or None}
    table: dict[str, list[dict[str, Any]]] = {"images": [], "size": [], "groups": []}
    for images in map(int, args.images.split(",")):
        x = loaded.repeat(-(-images // len(loaded)), 1, 1, 1)[:images]
        table["images"].append(
            {"images": images, **measure(mg.SparseMoreauGrad(model, **eager | {"compile": args.compile}), x)}
        )
        print(table["images"][-1], flush=True)
        del x
    for size in map(int, args.sizes.split(",")):
        x = torch.nn.functional.interpolate(loaded, size=(size, size), mode="bilinear")
        table["size"].append({"size": size, **measure(mg.SparseMoreauGrad(model, **eager), x)})
        print(table["size"][-1], flush=True)
    for cells in map(int, args.groups.split(",")):
        method = mg.GroupSparseMoreauGrad(model, groups=cells, **eager)
        table["groups"].append({"groups": cells**2, **measure(method, loaded)})
        print(table["groups"][-1], flush=True)
    costs = [row["seconds_per_image"] for row in table["images"]]
    results = {"budget": args.budget, "largest_over_smallest_cost": max(costs) / min(costs), **table}
    print(results["largest_over_smallest_cost"])
    record.store("scaling", args.device, results, args.out)


def measure(method: Any, x: Tensor) -> dict[str, Any]:
    """Seconds per image, and the memory beyond inputs and results."""
    method.attribute(x[:1], target=0)  # warms up
    before = 0
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    found, seconds = record.timed(str(x.device), lambda: method.explain(x, target=0))
    row: dict[str, Any] = {"seconds_per_image": seconds / len(found)}
    if x.is_cuda:
        row["result_bytes"] = torch.cuda.memory_allocated() - before
        row["working_bytes"] = torch.cuda.max_memory_allocated() - before - row["result_bytes"]
    return row


if __name__ == "__main__":
    main()
