"""How long a user waits for the map of one photo, imports and the loading of the model apart.

python -m benchmarks.waiting --data FOLDER [--device cpu] [--qualities fast,balanced] [--repeats 3]
"""

from __future__ import annotations

import resource

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.methods import QUALITY


def main() -> None:
    asked = record.arguments(__doc__, qualities="fast,balanced", repeats=1, budget_of="")
    model, x = photos.load(asked.data, 1, asked.device)
    other = dict(pair.split("=") for pair in asked.budget_of.split(",") if pair)
    table = []
    for quality in asked.qualities.split(","):
        budget = int(other.get(quality, QUALITY[quality]))
        seconds = []
        for _ in range(asked.repeats):
            method = mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget)  # a new one: nothing is warm
            seconds.append(record.timed(asked.device, lambda method=method: method.explain(x))[1])
        table.append({"quality": quality, "gradients": budget, "seconds": seconds})
        print(table[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    record.store("waiting", asked.device, {"table": table, "peak_bytes_of_the_process": peak}, asked.out)


if __name__ == "__main__":
    main()
