"""The folder that `explain` fills: some files per image, and one line about it in results.jsonl.

Any number of processes may work on one folder, and each may be killed at any moment:

- An image belongs to the process that holds its lock, and files and lines are written under a lock of the whole
  folder. Both are locks on bytes of results.jsonl far behind its end; the system frees them when a process dies.
- Files are written as hidden drafts, then the line, then the drafts are renamed. A process that finds a line whose
  drafts still lie there renames them; drafts without a line are replaced when the image is explained again.

results.jsonl only grows. The last line with an `id` counts; lines that cannot be read are left where they are.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from moreaugrad.data.sources import RESULTS
from moreaugrad.locks import lock, unlock

FORMAT = 1  # of a line; raise it when an older reader would misread it
ENDINGS = ("png", "npz", "json")
MINE, BUSY, DONE = "mine", "busy", "done"
_FOLDER_LOCK, _FIRST_LOCK, _LOCKS = 2**30, 2**30 + 1, 2**29  # places of the locks: below 2**31, as Windows needs
_LONGEST = 200  # bytes of a file name before its ending and number; systems take 255

MENDED = ("file", "frame", "rank", "method", "model")  # what a failure and the result after it have in common

Record: TypeAlias = dict[str, Any]  # one line


def identify(facts: Mapping[str, Any]) -> str:
    """A short name for everything that a result depends on."""
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=12).hexdigest()


class ResultsFolder:
    """The results in one folder, and the right to add to them. Use it in a `with` statement.

    Args:
        path: the folder, which must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}  # by id
        self._names: dict[str, str] = {}  # of the files of an id, without number and ending
        self._owners: dict[str, str] = {}  # the id that a name belongs to
        # The only handle: POSIX drops every lock of a process when it closes any handle of the file.
        from moreaugrad.files import refuse_folder

        refuse_folder(path / RESULTS)
        try:
            self._lines = (path / RESULTS).open("a+b", buffering=0)
        except OSError as error:
            raise type(error)(
                f"{path / RESULTS} must be a file that can be written, got one that cannot be opened "
                f"({error.strerror}); move it away, or name another folder"
            ) from error
        self._read_to = self._unread = 0
        with self.alone():
            self._finish_last_line()
            self.read_lines()
        if self._unread:
            warnings.warn(
                f"{path / RESULTS}: {self._unread} line{'s' * (self._unread > 1)} cut off, from another version "
                "or with files of other folders; kept there, but their images count as not done",
                stacklevel=2,
            )

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process writes to the folder meanwhile."""
        while not lock(self._lines.fileno(), _FOLDER_LOCK):
            time.sleep(0.002)
        try:
            yield
        finally:
            unlock(self._lines.fileno(), _FOLDER_LOCK)

    def owns(self, path: Path) -> bool:
        """Whether a file is one of the results: where images lie in the same folder, these are none."""
        name = path.name.removesuffix(path.suffix).casefold()
        return name in self._owners and path.parent.resolve() == self.path.resolve()

    def find_done(self, identities: Iterable[str], endings: Iterable[str]) -> set[str]:
        """Those that are explained, with a file of each ending."""
        with self.alone():
            self.read_lines()
            return {identity for identity in identities if self._is_done(identity, endings)}

    def claim(self, identity: str, endings: Iterable[str], again: bool = False) -> str:
        """MINE: nobody else will explain the image until `release`. BUSY: another process does. DONE: it is done."""
        with self.alone():
            self.read_lines()
            if not again and self._is_done(identity, endings):
                return DONE
            return MINE if lock(self._lines.fileno(), _place(identity)) else BUSY

    def release(self, identity: str) -> None:
        """Let others explain the image."""
        unlock(self._lines.fileno(), _place(identity))

    def store(self, identity: str, name: str, facts: Record, contents: Mapping[str, bytes | None]) -> Record:
        """Write files and their line, all or nothing.

        Args:
            identity: of the image, the method and all options.
            name: of the files; another image's files are never replaced, a number keeps them apart.
            facts: the line, to which `files` and `id` are added.
            contents: ending -> bytes; None stands for the line itself.

        Returns:
            The line.
        """
        with self.alone():
            self.read_lines()
            known = self.records.get(identity, {})
            stem = (self._names.get(identity) or self._free_name(name)) if contents else ""
            there = {end: file for end, file in known.get("files", {}).items() if self._exists(file)}
            files = there | {end: f"{stem}.{end}" for end in contents}
            line = facts | {"files": files, "id": identity, "format": FORMAT}
            if "error" in facts and facts["error"] == known.get("error"):
                return known  # told already
            line["sizes"] = {files[end]: len(each) for end, each in contents.items() if each is not None}
            pretty = json.dumps(line, ensure_ascii=False, indent=2).encode() + b"\n"
            self._write({files[end]: pretty if each is None else each for end, each in contents.items()}, line)
            self.read_lines()
            return line

    def _write(self, files: Mapping[str, bytes], line: Record) -> None:
        from moreaugrad.files import append_whole

        try:
            for file, content in files.items():
                self._draft(file).write_bytes(content)
            append_whole(self._lines, json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        except BaseException:
            for file in files:
                self._draft(file).unlink(missing_ok=True)
            raise
        for file in files:
            self._draft(file).replace(self.path / file)

    def read_lines(self) -> None:
        """Take in the lines that were added since the last time, by whichever process."""
        self._lines.seek(self._read_to)
        for line in (self._lines.read() or b"").splitlines(keepends=True):
            self._read_to += len(line)
            record = _read_line(line)
            if record is None:
                self._unread += bool(line.strip())
                continue
            identity: str = record["id"]
            self.records[identity] = record
            for end, file in record["files"].items():
                name = file.removesuffix(f".{end}")
                self._names[identity], self._owners[name.casefold()] = name, identity

    def _finish_last_line(self) -> None:
        """A line that was cut off must not swallow the next one."""
        if end := self._lines.seek(0, os.SEEK_END):
            self._lines.seek(end - 1)
            if self._lines.read(1) != b"\n":
                self._lines.write(b"\n")

    def _is_done(self, identity: str, endings: Iterable[str]) -> bool:
        record = self.records.get(identity)
        if record is None or "error" in record:
            return False
        files = record["files"]
        for file in files.values():
            draft, size = self._draft(file), record.get("sizes", {}).get(file)
            # whole, and its process was killed between line and name
            if draft.is_file() and (draft.stat().st_size == size or (size is None and not self._exists(file))):
                draft.replace(self.path / file)
        return all(end in files and self._exists(files[end]) for end in endings)

    def _free_name(self, wanted: str) -> str:
        short = wanted.encode()[:_LONGEST].decode(errors="ignore")
        number, name = 1, short
        while name.casefold() in self._owners or any(self._exists(f"{name}.{end}", 0) for end in ENDINGS):
            number += 1
            name = f"{short}.{number}"
        return name

    def _exists(self, file: str, least: int = 1) -> bool:
        with suppress(OSError):
            return (self.path / file).stat().st_size >= least
        return False

    def _draft(self, file: str) -> Path:
        return self.path / f".{file}.tmp"


def _read_line(line: bytes) -> Record | None:
    """A line as a process of ours writes it, or None. No file that it names can lie in another folder."""
    from moreaugrad.files import parse_json

    try:
        record: Record = parse_json(line)
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()  # or the page of the folder could not hold it
        plain = [record.get(name) for name in ("id", "error", *MENDED)] + list(record.get("sizes", {}).values())
        ours = record["format"] == FORMAT and isinstance(record["id"], str)
        ours = ours and all(each is None or isinstance(each, str | int) for each in plain)
        ours = ours and all(end in ENDINGS and _is_name(file, end) for end, file in record["files"].items())
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return record if ours else None


def _is_name(file: str, end: str) -> bool:
    """Whether a text names a file of the folder itself, and none elsewhere."""
    return file.endswith(f".{end}") and not any(each in file for each in "/\\\0")


def _place(identity: str) -> int:
    """Two images whose locks fall together are not explained at the same time; nothing worse."""
    return _FIRST_LOCK + int(identity, 16) % _LOCKS
