"""The process of a local worker."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO


def main() -> None:
    """Take a spec and tasks from standard input, and answer on standard output, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints must not get between the answers
    messages: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, messages), daemon=True).start()
    from moreaugrad.bulk_jobs.engines.base import Broken
    from moreaugrad.bulk_jobs.worker import DeviceLost, Worker

    def answer(message: Any) -> None:
        pickle.dump(message, answers)
        answers.flush()

    try:
        device, spec = messages.get()
        spec = replace(pickle.loads(spec), device=device)
        Worker.prepare_process(spec)
        worker = Worker(spec)
        answer("ready")
        while True:
            answer(worker.run(messages.get(), answer))
    except DeviceLost as error:
        sys.stderr.write(f"{error}\n")
        os._exit(70)
    except BaseException as error:
        answer(Broken(_describe(error)))
        os._exit(1)


def _listen(handle: BinaryIO, messages: SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(pickle.load(handle))
    except BaseException:
        os._exit(0)  # whoever started this process is gone


def _describe(error: BaseException) -> str:
    from moreaugrad.api import describe_error

    return describe_error(error)
