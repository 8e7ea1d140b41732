"""Calls the package with bad input thousands of times: files, tensors, options, commands, requests.

python -m reliability.fuzz [--cases 10000] [--seed 0] [--targets a,b] [--only TARGET:NUMBER] [--workers 2]
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from benchmarks import record
from reliability.fuzz.runner import Failure, run_cases
from reliability.fuzz.targets import TARGETS, share


def main() -> None:
    args = record.arguments(__doc__, data=False, cases=10_000, seed=0, targets="", only="", workers=2)
    if args.only:
        target, number = args.only.rsplit(":", 1)
        [(_, failure)] = run_cases(target, args.seed, int(number), 1)
        sys.exit(show(failure) if failure else 0)
    counts = share(args.cases)
    chosen = args.targets.split(",") if args.targets else list(TARGETS)
    began = time.perf_counter()
    with ThreadPoolExecutor(args.workers) as pool:
        tasks = [pool.submit(run_target, each, args.seed, counts[each]) for each in chosen]
        found = {name: task.result() for name, task in zip(chosen, tasks, strict=True)}
    rows = [{"target": name, "cases": counts[name], "failures": len(found[name])} for name in chosen]
    failures = [asdict(each) for several in found.values() for each in several]
    print(json.dumps(rows, indent=1))
    results = {"cases": sum(counts[name] for name in chosen), "seed": args.seed, "targets": rows, "failures": failures}
    if not args.targets:
        record.store("fuzz", "cpu", results | {"seconds": time.perf_counter() - began}, args.out)
    sys.exit(bool(failures))


def run_target(name: str, seed: int, count: int) -> list[Failure]:
    """The failures of a target, each told at once; of a fault that repeats, the first ten."""
    found, told = [], Counter[str]()
    for _, failure in run_cases(name, seed, 0, count):
        if failure is not None:
            found.append(failure)
            told[failure.fault[:60]] += 1
            if told[failure.fault[:60]] <= 10:
                show(failure)
    return found


def show(failure: Failure) -> int:
    print(f"{failure.target}:{failure.number} {failure.name}\n    {failure.fault}", flush=True)
    return 1


if __name__ == "__main__":
    main()
