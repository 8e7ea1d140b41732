"""Files that are written whole or not at all, whatever happens in between."""

import errno
import os
import signal
import time

import pytest

from moreaugrad import files

DRAFT = f".{'0123456789abcdef' * 2}.tmp"


def test_what_is_renamed_is_on_the_disk_first(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.fstat(handle).st_size))
    with files.replacing(tmp_path / "file") as handle:
        handle.write(b"content")
        assert not done
    assert done == [7]
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize(("number", "fine"), [(errno.EINVAL, True), (errno.EIO, False), (errno.ENOSPC, False)])
def test_only_a_disk_that_cannot_tell_is_believed(tmp_path, monkeypatch, number, fine):
    def fail(handle):
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", fail)
    (tmp_path / "file").write_bytes(b"old")
    if fine:
        with files.replacing(tmp_path / "file") as handle:
            handle.write(b"new")
    else:
        with pytest.raises(OSError, match="no"), files.replacing(tmp_path / "file") as handle:
            handle.write(b"new")
    assert (tmp_path / "file").read_bytes() == (b"new" if fine else b"old")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Torn:
    """A file on a disk that is full after a few more bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "full")
        taken = self.file.write(bytes(data)[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", range(6))
def test_a_line_is_added_whole_or_not_at_all(tmp_path, room):
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    with path.open("ab", buffering=0) as file:
        if room < 4:
            with pytest.raises(OSError, match="full"):
                files.append_whole(Torn(file, room), b"two\n")
        else:
            files.append_whole(Torn(file, room), b"two\n")
    assert path.read_bytes() == b"one\n" + b"two\n" * (room >= 4)


def test_drafts_of_killed_processes_go_and_everything_else_stays(tmp_path):
    for name in (DRAFT, ".photo.png.tmp", ".0123.tmp", ".hidden", "visible"):
        (tmp_path / name).touch()
    with files.replacing(tmp_path / "file") as handle:
        files.make_folder(tmp_path)
        handle.write(b"content")
    assert {path.name for path in tmp_path.iterdir()} == {".photo.png.tmp", ".0123.tmp", ".hidden", "visible", "file"}
    files.make_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_draft_that_another_process_writes_stays_until_it_is_killed(tmp_path):
    child = os.fork()
    if not child:
        with files.replacing(tmp_path / "file") as handle:
            handle.write(b"half")
            handle.flush()
            (tmp_path / "ready").touch()
            time.sleep(600)
        os._exit(0)
    try:
        while not (tmp_path / "ready").exists():
            time.sleep(0.002)
        files.make_folder(tmp_path)
        assert len(list(tmp_path.glob(".*.tmp"))) == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    files.make_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]
