"""Runs a program, and ends it at once where it reaches for another machine or writes outside one folder.

python watched.py FOLDER -c CODE | -m MODULE ARGUMENTS...

Exit code 97 and a line on stderr tell what it tried: an exception could be swallowed on its way. Processes that it
starts are not watched. Caches of libraries go to the folder too.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

REACHES = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg")
WRITES = {  # event: place of the path in its arguments
    "os.chmod": 0, "os.link": 1, "os.mkdir": 0, "os.remove": 0, "os.rename": 1, "os.rmdir": 0, "os.symlink": 1,
    "os.truncate": 0, "os.utime": 0,
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CACHES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TMPDIR", "TORCH_HOME", "HF_HOME")


def watch(folder: str) -> None:
    """From now on nothing but the folder is written."""
    home = os.path.realpath(folder)

    def is_inside(path: Any) -> bool:
        if isinstance(path, int):  # a file that is open already
            return True
        found = os.path.realpath(os.fsdecode(path))
        return found.startswith((home + os.sep, "/dev/")) or found == home

    def see(event: str, given: tuple[Any, ...]) -> None:
        wrote = event == "open" and isinstance(given[2], int) and given[2] & WRITING
        changed = given[0] if wrote else given[WRITES[event]] if event in WRITES else home
        if event in REACHES or not is_inside(changed):
            end(f"{event} {given}")

    sys.addaudithook(see)


def end(what: str) -> None:
    os.write(2, f"watched: {what}\n".encode())
    os._exit(97)


def main() -> None:
    folder, kind, what, *arguments = sys.argv[1:]
    os.environ.update(dict.fromkeys(CACHES, folder))
    watch(folder)
    sys.argv = [what if kind == "-m" else kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<watched>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
