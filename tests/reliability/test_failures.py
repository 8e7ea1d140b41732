"""The judges of failures find planted faults; and the package has none, at some calls and writes of each kind."""

import shutil
from pathlib import Path

import pytest
import torch

from reliability import commands, failing_calls, failing_writes
from reliability.commands import COMMANDS
from reliability.failing_calls import Subject, Trapped, fail_everywhere
from reliability.failing_writes import Disk

SOME = (
    "moreau.explain (graded)",
    "gradcam.attribute (trapped)",
    "topk (trapped)",
    "certify (trapped)",
    "insertion (graded)",
)


@pytest.mark.parametrize("name", SOME)
def test_a_model_that_fails_leaves_everything_as_it_was(name):
    count, faults = fail_everywhere(name, failing_calls.list_subjects()[name], 6)
    assert count > 0
    # beartype, which checks shapes in tests alone, draws from Python's random numbers which item of a list it looks at
    assert [fault for fault in faults if not fault.endswith("random numbers of Python")] == []


PLANTED = {
    "a hook": lambda model, x: model.net.head.register_forward_hook(lambda *given: None),
    "a flag": lambda model, x: model.net.head.requires_grad_(False),
    "the mode": lambda model, x: model.net.train(),
    "a gradient": lambda model, x: setattr(model.net.head.bias, "grad", torch.ones(10)),
    "a weight": lambda model, x: model.net.head.weight.data.mul_(2),
    "the input": lambda model, x: x.add_(1),
    "random numbers": lambda model, x: torch.rand(1),
    "global state": lambda model, x: torch.set_default_dtype(torch.float64),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_failing_call_leaves_behind_is_found(name):
    def make():
        model, x = failing_calls.make_model(Trapped), failing_calls.make_images()

        def run():
            model(x)
            PLANTED[name](model, x)
            return model(x)

        return Subject(model, run, (x,))

    wanted = torch.zeros(2, 10)
    try:
        with torch.random.fork_rng():
            faults = make().fail(1, failing_calls.PlantedError, wanted)
    finally:
        torch.set_default_dtype(torch.float32)
    assert any(fault.startswith("left changed") for fault in faults), faults


def test_every_call_is_counted_and_failed():
    def make():
        model, x = failing_calls.make_model(Trapped), failing_calls.make_images()
        return Subject(model, lambda: [model(x) for _ in range(5)], (x,))

    assert fail_everywhere("five", make, 100) == (5, [])
    assert fail_everywhere("five", make, 2)[0] == 5  # the first four and the last


@pytest.mark.slow
@pytest.mark.parametrize("kind", failing_writes.KINDS)
@pytest.mark.parametrize(("name", "step"), [("explain", "write results.jsonl"), ("train", "write ."), ("bulk", "open")])
def test_a_write_that_fails_leaves_whole_files_and_the_next_run_completes_them(place, name, step, kind):
    command = COMMANDS[name]
    out = Path(command.out).resolve()
    failing_writes.run_watched(command, first := Disk(out))
    whole = commands.read_contents(out)
    shutil.rmtree(out)
    at = next(number for number, done in enumerate(first.done) if done.startswith(step))
    for number in (at, len(first.done) - 1):
        assert failing_writes.fail_once(command, Disk(out, number, kind), whole) == []
        shutil.rmtree(out)


def test_the_judge_of_folders_finds_what_is_torn_doubled_or_left(tmp_path):
    whole = {"rows.csv": [{"a": "1"}, {"a": "2"}], "study.json": {"a": 1}}
    good = {"rows.csv": "a\n1\n", "study.json": '{"a": 1}'}

    def judge(**changed):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, text in (good | changed).items():
            (tmp_path / name).write_text(text)
        return failing_writes.judge_folder(tmp_path, whole)

    assert judge() == []
    for changed in (
        {"rows.csv": "a\n1"},
        {"rows.csv": "a\n1\n1\n2\n"},
        {"rows.csv": "a\n3\n"},
        {"study.json": '{"a'},
        {"study.json": '{"a": 2}'},
        {"other": ""},
        {".draft.tmp": ""},
    ):
        assert len(judge(**changed)) == 1, changed
