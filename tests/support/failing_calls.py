"""The law that a call leaves nothing behind, wherever the model fails in it."""

import pytest


class CallFailedError(Exception):
    """Raised in place of the model's answer."""


class CallCounter:
    """Counts the calls of a model, and fails after those that are allowed."""

    def __init__(self, allowed=float("inf")):
        self.allowed, self.made = allowed, 0

    def __call__(self, rows):
        self.made += 1
        if self.made > self.allowed:
            raise CallFailedError


def fail_at_each_call(run, check, choose=range):
    """Calls `run(counter)` once in full, then with a failure after each number of calls in `choose(total)`.

    The model of `run` must show its rows to the counter; `check()` looks at what each run left behind.
    """
    counter = CallCounter()
    run(counter)
    check()
    for allowed in choose(counter.made):
        with pytest.raises(CallFailedError):
            run(CallCounter(allowed))
        check()
