"""How long a user waits for the map of one photo, without imports and loading the model.

python -m benchmarks.waiting --data FOLDER [--device cpu] [--qualities fast,balanced] [--repeats 3]
"""

from __future__ import annotations

import resource

import moreaugrad as mg
from benchmarks import photos, record


def main() -> None:
    args = record.arguments(__doc__, qualities="fast,balanced", repeats=1, budget_of="")
    model, x = photos.load(args.data, 1, args.device)
    other = dict(pair.split("=") for pair in args.budget_of.split(",") if pair)
    table = []
    for quality in args.qualities.split(","):
        budget: int | str = int(other[quality]) if quality in other else quality
        seconds = []
        for _ in range(args.repeats):
            method = mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget)  # a new one, so that nothing is prepared
            seconds.append(record.timed(args.device, lambda method=method: method.explain(x))[1])
        table.append({"quality": quality, "gradients": method.budget, "seconds": seconds})
        print(table[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    record.store("waiting", args.device, {"table": table, "peak_bytes_of_the_process": peak}, args.out)


if __name__ == "__main__":
    main()
