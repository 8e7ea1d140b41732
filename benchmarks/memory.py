"""Peak memory of a map against internal_batch_size; each point in a process of its own.

python -m benchmarks.memory [--device cuda] [--rows 0,1,4,8,16,32]

0 rows stands for the default. On a CPU the peak is that of the whole process, Python and torch included.
"""

from __future__ import annotations

import multiprocessing
import resource
from typing import Any

import torch

from benchmarks import record


def peak(device: str, rows: int, budget: int) -> dict[str, Any]:
    """The peak of one process that explains one photo-sized image."""
    import moreaugrad as mg

    model = mg.load_model("efficientnet_lite0", device=device)
    x = torch.randn((1, 3, 224, 224), generator=torch.Generator().manual_seed(0)).to(device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget).attribute(x, 0, internal_batch_size=rows or None)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.startswith("cuda"):
        return {"rows": rows, "peak_bytes": torch.cuda.max_memory_allocated()}
    return {"rows": rows, "peak_bytes": after, "bytes_before_the_map": before}


def main() -> None:
    asked = record.arguments(__doc__, False, rows="0,1,4,8,16,32", budget=64)
    fresh = multiprocessing.get_context("spawn")
    table = []
    for rows in map(int, asked.rows.split(",")):
        with fresh.Pool(1) as pool:
            table.append(pool.apply(peak, (asked.device, rows, asked.budget)))
        print(table[-1], flush=True)
    record.store("memory", asked.device, {"budget": asked.budget, "table": table}, asked.out)


if __name__ == "__main__":
    main()
