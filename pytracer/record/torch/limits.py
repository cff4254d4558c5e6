"""The limits of the process and how much of each is used, where an exception's words are those of an exhausted one.

As the variables `limit open files`, `used open files` and so on: numbers of bytes, seconds or items; no limit, no
variable. `open files like`, `threads like`: what most of them are. Nothing of another process is read, no file system
is asked, and no code of the program runs.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import re
import threading

from pytracer.blackbox.redaction import redact_text
from pytracer.record.config import records_values
from pytracer.record.torch.descriptors import INFINITE, OPEN_FILES, chain, errno_of, get_limit, message_of

_ERRNOS = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EFBIG)
_WORDS = re.compile(
    r"[Cc]an(?:no|')t allocate memory|[Nn]ot enough memory|[Oo]ut of (?:host )?memory|[Uu]nable to (?:allocate|mmap)"
    r"|bad_alloc|[Tt]oo many open files|0 items of ancdata|start new thread|temporarily unavailable|pthread_create"
    r"|[Ff]ile too large|PytorchStreamWriter failed|unexpected pos \d|failed to map segment|[Cc]annot map"
)
_RESOURCES = {
    0: "cpu seconds", 1: "file size", 2: "data", 3: "stack", 6: "threads of the user", 7: "open files",
    9: "address space",
}  # fmt: skip
_STATUS = {
    "VmSize": "used address space", "VmPeak": "peak address space", "VmData": "used data", "VmRSS": "used memory",
    "Threads": "used threads",
}  # fmt: skip
_MACHINE = {"MemTotal": "machine memory", "MemAvailable": "machine memory left"}
_DEEPEST = 65536
_BLOCK = 1 << 16
_DIGITS, _NUMBERS = re.compile(r"\d+"), re.compile(r"(?<![^\W_])\d+(?![^\W_])")
_KILO = 1024


def of_limits(error: BaseException) -> bool:
    """Whether it, or what it was raised for, may come of a limit."""
    return any(_is_of_limits(item) for item in chain(error))


def _is_of_limits(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    return errno_of(error) in _ERRNOS or _WORDS.search(message_of(error)) is not None


def limits_at(error: BaseException) -> list[dict[str, str]]:
    """Nothing for other exceptions, and below `--no-values`."""
    if not records_values() or not of_limits(error):
        return []
    facts: dict[str, str] = {}
    for number, name in _RESOURCES.items():
        limit = get_limit(number)
        if limit is not None and limit.soft != INFINITE:
            facts[f"limit {name}"] = str(limit.soft)
            if limit.hard != INFINITE and limit.hard != limit.soft:
                facts[f"hard limit {name}"] = str(limit.hard)
    for part in (_status, _mappings, _pids, _machine, _open_files, _threads):
        with contextlib.suppress(OSError, ValueError, MemoryError, IndexError):
            facts |= part()
    return [{"name": name, "value": value} for name, value in facts.items()]


def _status() -> dict[str, str]:
    return _fields("/proc/self/status", _STATUS)


def _machine() -> dict[str, str]:
    return _fields("/proc/meminfo", _MACHINE)


def _fields(path: str, names: dict[str, str]) -> dict[str, str]:
    found = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in names:
                words = rest.split()
                found[names[name]] = str(int(words[0]) * (_KILO if words[1:] == ["kB"] else 1))
    return found


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().strip()


def _mappings() -> dict[str, str]:
    count = 0
    descriptor = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while block := os.read(descriptor, _BLOCK):
            count += block.count(b"\n")
    finally:
        os.close(descriptor)
    return {"used mappings": str(count), "limit mappings": str(int(_first_line("/proc/sys/vm/max_map_count")))}


def _pids() -> dict[str, str]:
    """Of the container: processes and threads together."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        if controllers and "pids" not in controllers.split(","):
            continue
        for root in (f"/sys/fs/cgroup/pids{path}", "/sys/fs/cgroup/pids") if controllers else (
            f"/sys/fs/cgroup{path}", "/sys/fs/cgroup"):  # fmt: skip
            with contextlib.suppress(OSError, ValueError):
                most = _first_line(f"{root}/pids.max")
                if most != "max":
                    used = _first_line(f"{root}/pids.current")
                    return {"limit pids of the cgroup": str(int(most)), "used pids of the cgroup": str(int(used))}
    return {}


def _open_files() -> dict[str, str]:
    """readlink() of a descriptor asks no file system, and needs no descriptor of its own."""
    limit = get_limit(OPEN_FILES)
    kinds: collections.Counter[str] = collections.Counter()
    for number in range(min(_DEEPEST, limit.soft if limit is not None else _DEEPEST)):
        try:
            kinds[_kind(os.readlink(f"/proc/self/fd/{number}"))] += 1
        except OSError:
            continue
    facts = {"used open files": str(kinds.total())}
    most = _commonest(kinds)
    if most is not None and not redact_text(most[0].encode("utf-8", "replace"))[1]:
        facts["open files like"] = f"{most[1]} {most[0]}"
    return facts


def _kind(target: str) -> str:
    """`socket`, `pipe`, `/data/tile_#.raw`."""
    if not target.startswith("/"):
        return target.partition(":[")[0]
    if target.startswith("/torch_"):
        return "/torch_#"
    folder, name = os.path.split(target.removesuffix(" (deleted)"))
    above, last = os.path.split(folder)  # `run/trial12/train.log`: a folder for each file
    return os.path.join(_NUMBERS.sub("#", above), _DIGITS.sub("#", last), _DIGITS.sub("#", name))


def _threads() -> dict[str, str]:
    """Those of Python, by what their names have in common: `Thread-# (copy)`."""
    held = list(getattr(threading, "_active", {}).values())
    names = collections.Counter(_DIGITS.sub("#", name) for item in held if type(name := vars(item).get("_name")) is str)
    most = _commonest(names)
    return {"threads like": f"{most[1]} {most[0]}"} if most is not None else {}


def _commonest(kinds: collections.Counter[str]) -> tuple[str, int] | None:
    """most_common() imports a module, which needs a descriptor."""
    return max(kinds.items(), key=lambda item: item[1], default=None)
