"""The results folder: each image once, its files whole, whoever is killed when, and nobody's file replaced."""

import errno
import json
import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from moreaugrad import locks
from moreaugrad.cli.index_page import write_index
from moreaugrad.cli.results_folder import BUSY, DONE, FORMAT, MINE, RESULTS, ResultsFolder, identify

ONE, TWO = identify({"file": "a.png"}), identify({"file": "b.png"})
FILES = {"png": b"picture", "npz": b"map"}
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / RESULTS).read_text().splitlines()]


def visible(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.name[0] != "." and each.name != RESULTS}


def in_another_process(work) -> int:
    """Runs `work` in a forked process; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_stored_image_is_done_until_a_file_is_gone(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        assert folder.claim(ONE, FILES) == MINE
        line = folder.store(ONE, "a.gradcam", {"key": "a"}, FILES)
        assert folder.claim(ONE, FILES) == DONE
        assert folder.claim(ONE, [*FILES, "json"]) == MINE
    assert line["files"] == {"png": "a.gradcam.png", "npz": "a.gradcam.npz"}
    assert lines(tmp_path) == [line]
    assert visible(tmp_path) == {"a.gradcam.png": b"picture", "a.gradcam.npz": b"map"}
    with ResultsFolder(tmp_path) as again:
        assert again.find_done([ONE, TWO], FILES) == {ONE}
        (tmp_path / "a.gradcam.npz").unlink()
        assert not again.find_done([ONE], FILES)
        assert again.find_done([ONE], ["png"]) == {ONE}
        assert again.store(ONE, "a.gradcam", {"key": "a"}, FILES)["files"] == line["files"]
        assert again.find_done([ONE], FILES) == {ONE}


def test_another_format_keeps_the_name_and_the_files_that_are_there(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        folder.store(TWO, "a", {}, FILES)
        folder.store(ONE, "a", {}, FILES)
        line = folder.store(ONE, "a", {"key": "a"}, {"json": None})
    assert line["files"] == {"png": "a.2.png", "npz": "a.2.npz", "json": "a.2.json"}
    assert json.loads((tmp_path / "a.2.json").read_text()) == line


@pytest.mark.parametrize("taken", ["a.png", "a.npz", "a.json"])
def test_a_file_of_another_image_or_of_the_user_is_never_replaced(tmp_path, taken):
    (tmp_path / taken).write_bytes(b"")
    with ResultsFolder(tmp_path) as folder:
        found = [folder.store(each, "a", {}, FILES)["files"]["png"] for each in (ONE, TWO)]
    assert found == ["a.2.png", "a.3.png"]
    assert (tmp_path / taken).read_bytes() == b""


def test_names_differ_where_disks_do_not_tell_capitals(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        found = [folder.store(each, name, {}, FILES)["files"]["png"] for each, name in ((ONE, "a"), (TWO, "A"))]
    assert found == ["a.png", "A.2.png"]


def test_a_name_of_any_length_fits(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        names = {folder.store(each, "\u00e4" * 250, {}, FILES)["files"]["png"] for each in (ONE, TWO)}
    assert len(names) == 2
    assert set(names) < set(visible(tmp_path))


def test_a_failure_is_told_once_and_tried_again(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        for error in ("bad", "bad", "worse"):
            assert folder.claim(ONE, FILES) == MINE
            folder.store(ONE, "a", {"error": error}, {})
        assert [line["error"] for line in lines(tmp_path)] == ["bad", "worse"]
        folder.store(ONE, "a", {}, FILES)
        assert folder.claim(ONE, FILES) == DONE


@pytest.mark.parametrize("damage", [b'{"id": "0123", "fi', b"\xff\xfe\0", b"[1]\n", b'{"key": "a", "file": "a.png"}\n'])
def test_a_torn_line_or_one_of_another_version_is_kept_and_told_and_swallows_nothing(tmp_path, damage):
    with ResultsFolder(tmp_path) as folder:
        folder.store(ONE, "a", {}, FILES)
    with (tmp_path / RESULTS).open("ab") as handle:
        handle.write(damage)
    before = (tmp_path / RESULTS).read_bytes()
    with pytest.warns(UserWarning, match=r"results\.jsonl: 1 line cut off") as told:
        folder = ResultsFolder(tmp_path)
    with folder:
        assert folder.find_done([ONE, TWO], FILES) == {ONE}
        folder.store(TWO, "b", {}, FILES)
    assert len(told) == 1
    content = (tmp_path / RESULTS).read_bytes()
    assert content.startswith(before)
    assert json.loads(content.splitlines()[-1])["id"] == TWO
    with pytest.warns(UserWarning, match="1 line cut off"), ResultsFolder(tmp_path) as folder:
        assert folder.find_done([ONE, TWO], FILES) == {ONE, TWO}


@pytest.mark.parametrize("name", ["{}", "../{}", "sub/{}", "../sub/{}", "..", ".", "", "a\0b"])
def test_a_line_that_somebody_else_wrote_replaces_no_file_outside(tmp_path, name):
    """Neither as a draft that waits for its name, nor as the name that the next result takes."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for place in (ours, theirs, ours / "sub", tmp_path / "sub"):
        place.mkdir()
    target = theirs / "a.png"
    target.write_bytes(b"theirs")
    file = name.format(target if name == "{}" else "a.png")
    line = {"id": ONE, "format": FORMAT, "files": {"png": file}, "sizes": {file: 7}}
    (ours / RESULTS).write_text(json.dumps(line) + "\n")
    with suppress(OSError, ValueError):
        draft = ours / f".{file}.tmp"
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(b"replace")
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file() and each.parent != ours}
    with pytest.warns(UserWarning, match="1 line cut off"):
        folder = ResultsFolder(ours)
    with folder:
        assert not folder.find_done([ONE], FILES)
        assert folder.store(ONE, "a", {}, FILES)["files"] == {"png": "a.png", "npz": "a.npz"}
    assert {each: each.read_bytes() for each in before} == before
    assert {each for each in tmp_path.rglob("*") if each.is_file() and each.parent != ours} == set(before)


@pytest.mark.parametrize(
    "wrong", [{"id": [1]}, {"id": 3}, {"sizes": None}, {"files": ["a.png"]}, {"files": {"png": 1}}]
)
def test_a_line_of_other_types_counts_as_none(tmp_path, wrong):
    with ResultsFolder(tmp_path) as folder:
        line = folder.store(ONE, "a", {}, FILES)
    (tmp_path / RESULTS).write_text(json.dumps(line | wrong) + "\n")
    with pytest.warns(UserWarning, match="1 line cut off"), ResultsFolder(tmp_path) as folder:
        assert folder.claim(ONE, FILES) == MINE


EDITS = {
    "a file above": {"files": {"png": "../secret.png"}},
    "a file elsewhere": {"files": {"png": "/secret.png"}},
    "a file of another kind": {"files": {"html": "index.html"}},
    "an ending that differs": {"files": {"png": "results.jsonl"}},
    "no name": {"files": {"png": None}},
    "an id that is none": {"id": ["a"]},
    "sizes that are none": {"sizes": {"a.png": []}},
    "an error that is no text": {"error": {}},
    "a method in a list": {"method": ["a"]},
    "NaN": {"score": float("nan")},
    "no text": {"label": "\ud800"},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_line_that_no_run_has_written_moves_and_shows_no_file(tmp_path, edit):
    """A draft beside it would take the place of the file that the line names."""
    (path := tmp_path / "maps").mkdir()
    with ResultsFolder(path) as folder:
        folder.store(ONE, "a", {}, FILES)
    (line,) = lines(path)
    (path / RESULTS).write_text(json.dumps(line | edit) + "\n")
    (tmp_path / "secret.png").write_bytes(b"secret")
    for draft in (".index.html.tmp", ".results.jsonl.tmp"):
        (path / draft).write_bytes(b"evil")
    before = (path / RESULTS).read_bytes()
    with pytest.warns(UserWarning, match="1 line cut off"):
        folder = ResultsFolder(path)
    with folder:
        assert folder.find_done([ONE], ["png"]) == set()
        assert folder.records == {}
        assert write_index(folder) is not None
    assert (path / RESULTS).read_bytes() == before
    assert (path / "index.html").read_bytes() != b"evil"
    assert (tmp_path / "secret.png").read_bytes() == b"secret"


def test_a_folder_in_the_place_of_the_lines_is_told(tmp_path):
    (tmp_path / RESULTS).mkdir()
    with pytest.raises(IsADirectoryError, match="got a folder"):
        ResultsFolder(tmp_path)
    (tmp_path / RESULTS).rmdir()
    (tmp_path / RESULTS).symlink_to(tmp_path / RESULTS)  # a link to itself
    with pytest.raises(OSError, match="that can be written"):
        ResultsFolder(tmp_path)


def test_a_line_of_a_later_format_is_not_read(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        folder.store(ONE, "a", {}, FILES)
    changed = (tmp_path / RESULTS).read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
    (tmp_path / RESULTS).write_text(changed)
    with pytest.warns(UserWarning, match="another version"), ResultsFolder(tmp_path) as folder:
        assert not folder.records


@pytest.mark.parametrize("fails", range(4))
def test_a_full_disk_leaves_what_was_there_and_nothing_half(tmp_path, monkeypatch, fails):
    """The write that fails is that of the first file, the second, the line at once, or the line after a part."""
    with ResultsFolder(tmp_path) as folder:
        folder.store(ONE, "a", {}, FILES)
        before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
        calls = iter(range(4))
        write_bytes, handle = Path.write_bytes, folder._lines

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        def write_file(path, content):
            return write_bytes(path, content[:3]) and full() if next(calls) == fails else write_bytes(path, content)

        class Narrow:
            def __getattr__(self, name):
                return getattr(handle, name)

            def write(self, content):
                return full() if next(calls) == fails else handle.write(content[:20])

        monkeypatch.setattr(Path, "write_bytes", write_file)
        monkeypatch.setattr(folder, "_lines", Narrow())
        with pytest.raises(OSError, match="No space left"):
            folder.store(TWO, "b", {}, FILES)
        monkeypatch.undo()
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
        folder.store(TWO, "b", {}, FILES)
    assert [line["id"] for line in lines(tmp_path)] == [ONE, TWO]


@forks
@pytest.mark.parametrize("step", range(6))
def test_a_process_killed_at_any_step_of_storing_is_made_good(tmp_path, monkeypatch, step):
    """Before the first file, the second, the line, the first new name, the second, or just after."""

    def die():
        calls = iter(range(6))

        def then(function):
            def call(*args):
                if next(calls) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args)

            return call

        with ResultsFolder(tmp_path) as folder:
            handle = folder._lines
            assert folder.claim(ONE, FILES) == MINE
            monkeypatch.setattr(Path, "write_bytes", then(Path.write_bytes))
            monkeypatch.setattr(Path, "replace", then(Path.replace))
            folder._lines = type("Handle", (), {"__getattr__": lambda _, name: getattr(handle, name)})()
            folder._lines.write = then(handle.write)
            folder.store(ONE, "a", {}, FILES)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(die) == -signal.SIGKILL
    with ResultsFolder(tmp_path) as folder:
        state = folder.claim(ONE, FILES)
        assert state == (DONE if step > 2 else MINE)
        if state == MINE:
            folder.store(ONE, "a", {}, FILES)
    assert visible(tmp_path) == {"a.png": b"picture", "a.npz": b"map"}
    assert not [each for each in tmp_path.iterdir() if each.name[0] == "."]
    assert [line["id"] for line in lines(tmp_path)] == [ONE]


@forks
def test_an_image_belongs_to_one_process_until_it_is_released_or_dies(tmp_path):
    states = tmp_path / "states"

    def ask():
        with ResultsFolder(tmp_path) as folder:
            states.write_text(folder.claim(ONE, FILES) + folder.claim(TWO, FILES))

    with ResultsFolder(tmp_path) as folder:
        assert folder.claim(ONE, FILES) == MINE
        assert in_another_process(ask) == 0
        assert states.read_text() == BUSY + MINE  # and what that process had is free again
        assert folder.claim(TWO, FILES) == MINE
        folder.release(ONE)
        assert in_another_process(ask) == 0
        assert states.read_text() == MINE + BUSY


@forks
def test_many_processes_share_the_work(tmp_path):
    """Each of four claims whatever is free: every image is stored once, and none is lost."""
    identities = [identify({"number": number}) for number in range(60)]

    def work():
        with ResultsFolder(tmp_path) as folder:
            left = list(identities)
            while left:
                identity = left.pop(0)
                state = folder.claim(identity, ["npz"])
                if state == BUSY:
                    left.append(identity)
                elif state == MINE:
                    time.sleep(0.001)
                    folder.store(identity, "same name", {}, {"npz": identity.encode()})
                    folder.release(identity)

    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    found = lines(tmp_path)
    assert sorted(line["id"] for line in found) == sorted(identities)
    assert all((tmp_path / line["files"]["npz"]).read_bytes() == line["id"].encode() for line in found)
    assert len(visible(tmp_path)) == 60


def test_a_disk_without_locks_is_told_of_and_used(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refuse)
    with pytest.warns(UserWarning, match="one process at a time"):
        folder = ResultsFolder(tmp_path)
    with folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert folder.claim(ONE, FILES) == MINE
        folder.store(ONE, "a", {}, FILES)
    assert len(lines(tmp_path)) == 1


def test_a_repeated_image_whose_process_died_before_the_names_has_its_new_files(tmp_path, monkeypatch):
    with ResultsFolder(tmp_path) as folder:
        folder.store(ONE, "a", {"score": 1}, {"npz": b"old"})
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                folder.store(ONE, "a", {"score": 2}, {"npz": b"newer"})
    with ResultsFolder(tmp_path) as again:
        assert again.find_done([ONE], ["npz"]) == {ONE}
    assert visible(tmp_path) == {"a.npz": b"newer"}


def test_a_draft_that_was_cut_off_replaces_nothing(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        folder.store(ONE, "a", {}, {"npz": b"whole"})
    (tmp_path / ".a.npz.tmp").write_bytes(b"wh")
    with ResultsFolder(tmp_path) as again:
        assert again.find_done([ONE], ["npz"]) == {ONE}
    assert visible(tmp_path) == {"a.npz": b"whole"}
