"""Descendants of the job that run Python or torch without the recorder, and why: the environment that they began with.

`env -i`, sudo and programs that make an environment of their own drop LD_PRELOAD. The tree of processes is looked at
after 1, 2, 4 ... seconds and then twice a minute, so that a process of a few seconds may be missed.

A process that ends, or that replaces itself by exec(), shows for a moment neither libraries nor environment. What looks
unseen is looked at again at the launcher's next poll, and told only if it still does. Our own commands are no part of
the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from pytracer.blackbox.redaction import redact_words
from pytracer.launcher.json_object import JsonObject

_CORE = b"libpytracer_core.so"
_TORCH = re.compile(rb"/libtorch(_cpu)?\.so|/libc10\.so")
_OWN = re.compile(r"(.*/bin/|)pytracer|.*/pytracer/decode/symbols/\w+\.py")  # also as -m pytracer; and what it starts
_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")
_YOUNGEST_SECONDS = 1.0
_MOST_SECONDS = 30.0
_AGAIN_SECONDS = 0.5
_MOST = 64
_WORDS = 4
_TICK = os.sysconf("SC_CLK_TCK")
_NEEDED = ("LD_PRELOAD", "PYTRACER_DIR")


class Unseen:
    """Those of one job."""

    def __init__(self) -> None:
        self.child = 0
        """The job's first process."""
        self._known: set[tuple[int, int]] = set()
        self._suspects: dict[tuple[int, int], JsonObject] = {}
        self._found: dict[tuple[int, int], JsonObject] = {}
        self._gap = _YOUNGEST_SECONDS
        self._next = time.monotonic() + self._gap

    def look(self) -> None:
        """When it is due; never raises."""
        now = time.monotonic()
        if not self.child or now < self._next:
            return
        with contextlib.suppress(Exception):
            self._look()
        if self._suspects:
            self._next = now + _AGAIN_SECONDS
        else:
            self._gap = min(2 * self._gap, _MOST_SECONDS)
            self._next = now + self._gap

    def as_list(self) -> list[JsonObject]:
        """For run.json."""
        return list(self._found.values())

    def _look(self) -> None:
        earlier, self._suspects = self._suspects, {}
        young = time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNGEST_SECONDS
        for pid, ticks in _below(self.child).items():
            identity = pid, ticks
            known = self._found.get(identity)
            if known is not None and not known["torch"]:
                known["torch"] = _loads_torch(pid)
            if identity in self._known or ticks / _TICK > young or len(self._found) >= _MOST:
                continue
            found = _examine(pid)
            if found is not None and earlier.get(identity, {}).get("lacks", ()) != found["lacks"]:
                self._suspects[identity] = found
                continue
            self._known.add(identity)
            if found is not None:
                self._found[identity] = {"pid": pid, "start_ticks": ticks, **found}


def _below(root: int) -> dict[int, int]:
    """The process and its descendants with their start times."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] not in ("Z", "X"):
                    parents[int(name)] = (int(words[1]), int(words[19]))
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in parents.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid in parents and pid not in found:
            found[pid] = parents[pid][1]
            todo += children.get(pid, [])
    return found


def _examine(pid: int) -> JsonObject | None:
    """What a process without the core is, and what its environment lacks; None if it is none of Python or torch."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return None
    if any(_OWN.fullmatch(word) for word in words[1:_WORDS]):
        return None  # a report that torchrun's agent wants, not a part of the job
    python = bool(words) and _PYTHON.fullmatch(words[0]) is not None
    command = redact_words(words)[0][:_WORDS]
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:  # another user, as below sudo
        return {"command": command, "torch": False, "lacks": None} if python else None
    except OSError:
        return None
    torch = _TORCH.search(maps) is not None
    if _CORE in maps or not maps or not (python or torch):
        return None
    names = {item.partition(b"=")[0].decode("ascii", "replace") for item in environ.split(b"\0")}
    preloads = _CORE in b"\0".join(item for item in environ.split(b"\0") if item.startswith(b"LD_PRELOAD="))
    present = names if preloads else names - {"LD_PRELOAD"}
    return {"command": command, "torch": torch, "lacks": [name for name in _NEEDED if name not in present]}


def _loads_torch(pid: int) -> bool:
    try:
        return _TORCH.search(Path(f"/proc/{pid}/maps").read_bytes()) is not None
    except OSError:
        return False
