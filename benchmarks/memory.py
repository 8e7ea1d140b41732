"""Peak memory of a map against internal_batch_size, each point in its own process.

python -m benchmarks.memory [--device cuda] [--rows 0,1,4,8,16,32]

0 rows means the default. On a CPU the peak is that of the whole process, including Python and torch.
"""

from __future__ import annotations

import multiprocessing
import resource
from typing import Any

import torch

from benchmarks import record


def peak(device: str, rows: int, budget: int) -> dict[str, Any]:
    """The peak memory of a process that explains one photo-sized image."""
    import moreaugrad as mg

    model = mg.load_model("efficientnet_lite0", device=device)
    x = torch.randn((1, 3, 224, 224), generator=torch.Generator().manual_seed(0)).to(device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget).attribute(x, target=0, internal_batch_size=rows or None)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.startswith("cuda"):
        return {"rows": rows, "peak_bytes": torch.cuda.max_memory_allocated()}
    return {"rows": rows, "peak_bytes": after, "bytes_before_the_map": before}


def main() -> None:
    args = record.arguments(__doc__, False, rows="0,1,4,8,16,32", budget=64)
    fresh = multiprocessing.get_context("spawn")
    table = []
    for rows in map(int, args.rows.split(",")):
        with fresh.Pool(1) as pool:
            table.append(pool.apply(peak, (args.device, rows, args.budget)))
        print(table[-1], flush=True)
    record.store("memory", args.device, {"budget": args.budget, "table": table}, args.out)


if __name__ == "__main__":
    main()
