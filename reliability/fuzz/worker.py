"""A process that runs cases one by one, and says on standard output which one it is at and how it ended."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path


def main() -> None:
    target, seed, first, last = sys.argv[1], *map(int, sys.argv[2:5])
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # asked for by the parent before it ends a case that hangs
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    scratch = tempfile.gettempdir()
    os.environ.update(XDG_CACHE_HOME=f"{scratch}/cache", MPLCONFIGDIR=f"{scratch}/cache/matplotlib", MPLBACKEND="agg")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/cache/torch"

    import torch

    from reliability.fuzz.case import judge
    from reliability.fuzz.targets import make, prepare

    torch.set_num_threads(1)
    prepare(target)  # what it imports must not count for the first case

    def tell(**news: object) -> None:
        print(json.dumps(news), file=pipe, flush=True)

    prepare(target)
    tell(ready=True)
    for number in range(first, last):
        tell(begin=number)
        case = make(target, seed, number)
        with tempfile.TemporaryDirectory() as name, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            fault = judge(case, Path(os.path.realpath(name)))
        tell(end=number, name=case.name, fault=fault)


if __name__ == "__main__":
    main()
