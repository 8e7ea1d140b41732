"""Handing out parts: whatever happens to workers, each part is written once, and one bad image costs itself alone."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moreaugrad.bulk_jobs.engines.base import Broken, Died, Finished, Progress
from moreaugrad.bulk_jobs.folder import split_parts
from moreaugrad.bulk_jobs.parts import BulkRow, read_rows, write_part
from moreaugrad.bulk_jobs.run import STRIKES, PartQueue, Run, RunState, WorkerError
from moreaugrad.bulk_jobs.worker import Done


class Clumsy:
    """Workers that take their time, and die by chance or of certain rows."""

    def __init__(self, folder, workers, chance, dies=0.0, poison=()):
        self.folder, self.chance, self.dies, self.poison = folder, chance, dies, set(poison)
        self.ready, self.starting, self.tasks = set(), set(range(workers)), {}
        self.done, self.hints = Counter(), Counter()

    def idle(self):
        return sorted(self.ready - self.tasks.keys())

    def submit(self, worker, task):
        assert worker in self.idle()
        self.tasks[worker] = task

    def wait(self, seconds):
        if self.starting and self.chance.random() < 0.5:
            self.ready.add(self.starting.pop())
            return []
        if not self.tasks:
            return []
        worker = self.chance.choice(sorted(self.tasks))
        task = self.tasks.pop(worker)
        if self.poison & set(task.rows) or self.chance.random() < self.dies:
            self.ready.discard(worker)
            self.starting.add(worker)
            return [Died(worker, task, "signal 9")]
        rows = [BulkRow(key=f"k{row}", row=row, seed=row) for row in task.rows]
        whole = task.rows == task.part.rows
        if whole:
            write_part(task.part.path(self.folder), rows)
            self.done[task.part.number] += 1
        return [
            Progress(worker, len(rows)),
            Finished(worker, task, Done(len(rows), 0, 5, 0.0, 0.1, 0.0, None if whole else rows)),
        ]

    def close(self):
        pass


def carry_out(folder, images, size, workers, seed, **given):
    parts = split_parts(images, size)
    spec = SimpleNamespace(folder=folder, half=False, source=SimpleNamespace(keys=[f"k{row}" for row in range(images)]))
    engine = Clumsy(folder, workers, random.Random(seed), **{k: given.pop(k) for k in ("dies", "poison") if k in given})
    state = RunState(images, workers=workers)
    seen = []
    Run(
        engine, PartQueue(parts, spec), state, lambda state, event: seen.append((state.explained, event)), **given
    ).finish()
    return engine, state, parts, seen


@settings(max_examples=40)
@given(images=st.integers(1, 40), size=st.integers(1, 9), workers=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_part_is_written_once(tmp_path_factory, images, size, workers, seed):
    engine, state, parts, seen = carry_out(tmp_path_factory.mktemp("job"), images, size, workers, seed)
    assert engine.done == {part.number: 1 for part in parts}
    assert (state.images, state.errors, state.unwritten.total()) == (images, 0, 0)
    assert [count for count, _ in seen] == sorted(count for count, _ in seen)


@settings(max_examples=40)
@given(images=st.integers(1, 30), size=st.integers(1, 9), workers=st.integers(1, 4), seed=st.integers(0, 99))
def test_deaths_cost_nothing_but_time(tmp_path_factory, images, size, workers, seed):
    folder = tmp_path_factory.mktemp("job")
    _, state, parts, _ = carry_out(folder, images, size, workers, seed, dies=0.15)
    rows = [row for part in parts for row in read_rows(part.path(folder))]
    assert [row.key for row in rows] == [f"k{row}" for row in range(images)]
    assert state.images == images
    assert state.errors == sum(row.error is not None for row in rows)


@settings(max_examples=40)
@given(size=st.integers(1, 7), poison=st.sets(st.integers(0, 19), max_size=3), seed=st.integers(0, 99))
def test_images_that_kill_workers_become_rows_with_an_error_and_no_others(tmp_path_factory, size, poison, seed):
    folder = tmp_path_factory.mktemp("job")
    _, state, parts, _ = carry_out(folder, 20, size, 2, seed, poison=poison)
    rows = [row for part in parts for row in read_rows(part.path(folder))]
    assert {row.row for row in rows if row.error is not None} == poison
    assert (len(rows), state.errors, state.images) == (20, len(poison), 20)
    assert all("died" in row.error for row in rows if row.error is not None)
    hurt = {row // size for row in poison}  # parts that are tried whole, and then row by row
    assert state.deaths == STRIKES * (len(hurt) + len(poison))


def test_a_limit_stops_after_the_part_that_reaches_it(tmp_path):
    engine, state, _, _ = carry_out(tmp_path, 40, 4, 2, 0, limit=10)
    assert state.stopped == "limit"
    assert state.images == 12
    assert sum(engine.done.values()) == 3


def test_no_time_means_no_part(tmp_path):
    _, state, _, _ = carry_out(tmp_path, 40, 4, 2, 0, limit_seconds=1e-9)
    assert (state.images, state.stopped) == (0, "limit")


class Failing(Clumsy):
    def wait(self, seconds):
        return [Broken("no space left")]


class Stillborn(Clumsy):
    def wait(self, seconds):
        return [Died(0, None, "signal 9")]


@pytest.mark.parametrize(("kind", "word"), [(Failing, "no space left"), (Stillborn, "signal 9")])
def test_what_no_other_worker_would_do_better_ends_the_run(tmp_path, kind, word):
    queue = PartQueue(split_parts(4, 2), SimpleNamespace(folder=tmp_path))
    with pytest.raises(WorkerError, match=word):
        Run(kind(tmp_path, 1, random.Random(0)), queue, RunState(4, workers=1), lambda state, event: None).finish()
