"""One call with odd input, and the verdict on what came of it.

An answer is right if the case's own check says so. An error is right if the package raised it on purpose: one of
`REFUSALS` that a `raise` in its own code made, with a message. Wrong are: any other exception, such as a raw
one of torch or NumPy; warnings that are not the package's; global state that was changed; files outside the output
folder; too much memory.
"""

from __future__ import annotations

import dis
import resource
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import moreaugrad
from reliability.fuzz import writes
from reliability.state import changed, global_state

PACKAGE = str(Path(moreaugrad.__file__).parent)
REFUSALS = (ValueError, TypeError, OSError, ImportError, LookupError, NotImplementedError)
MEMORY = 4 << 30  # bytes of a whole process, at most


def accept(answer: object) -> str | None:
    """The check of cases whose answer cannot be wrong."""


@dataclass(frozen=True)
class Case:
    """A call. `run` gets a folder of its own: the package may write below `out` there, and nowhere else.

    Attributes:
        name: what is tried, in a few words.
        run: makes the call, and returns what `check` looks at.
        check: what is wrong with an answer, or None.
    """

    name: str
    run: Callable[[Path], object]
    check: Callable[[object], str | None] = accept


def judge(case: Case, folder: Path) -> str | None:
    """What is wrong with a case, or None."""
    (folder / "out").mkdir(parents=True)
    before = global_state()
    faults: list[str] = []
    with writes.watch(PACKAGE, folder / "out") as outside, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        inside = global_state()
        try:
            fault = case.check(case.run(folder))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            fault = judge_error(error)
        faults += [f"left changed: {name}" for name in changed(inside, global_state())]
    faults += [fault] if fault else []
    faults += [f"left changed: {name}" for name in changed(before, global_state())]
    faults += [f"a warning from outside the package: {each.message}" for each in warned if not is_ours(each)]
    faults += [f"wrote outside the output folder: {path}" for path in outside]
    if (used := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024) > MEMORY:
        faults.append(f"took {used / 2**30:.1f} GiB of memory")
    return "; ".join(dict.fromkeys(faults)) or None


def judge_error(error: BaseException) -> str | None:
    """What is wrong with an exception as an answer to bad input, or None."""
    trace = error.__traceback__
    if trace is None:
        return f"an exception that was never raised: {error!r}"
    while trace.tb_next is not None:
        trace = trace.tb_next
    deliberate = isinstance(error, REFUSALS) and _is_raised(trace) and _is_package(trace.tb_frame.f_code.co_filename)
    if deliberate or _is_wrong_call(error, trace):
        return None if len(str(error)) > 15 else f"an error without a message: {error!r}"
    where = traceback.extract_tb(error.__traceback__)[-3:]
    steps = " < ".join(f"{Path(step.filename).name}:{step.lineno}" for step in reversed(where))
    return f"{type(error).__name__}: {str(error)[:200]} ({steps})"


def is_ours(warning: warnings.WarningMessage) -> bool:
    """Whether the package said it on purpose, at a line of its own or of its caller."""
    return warning.category is UserWarning and "site-packages" not in warning.filename


def _is_raised(trace: TracebackType) -> bool:
    """Whether the exception comes of a `raise`, not of an operation that failed."""
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _is_wrong_call(error: BaseException, trace: TracebackType) -> bool:
    """Python's own refusal of an argument that a function does not have."""
    file = trace.tb_frame.f_code.co_filename
    ours = not _is_package(file) and ("site-packages" not in file or "unexpected keyword argument" in str(error))
    return isinstance(error, TypeError) and trace.tb_next is None and ours and "argument" in str(error)


def _is_package(file: str) -> bool:
    return file.startswith(PACKAGE)
