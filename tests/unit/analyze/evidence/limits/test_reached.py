"""Which limit was reached: by numbers that leave no room for what was asked for; none where they do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.limits.words import LimitReason, limit_reason
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

GIB = 1 << 30
FORK = PythonFrame(function="Popen._launch", file="/usr/lib/python3.11/multiprocessing/popen_fork.py", line=66)
SOCKET = PythonFrame(function="read", file="/usr/lib/python3.11/socket.py", line=6)
MEMORY = {
    "limit address space": 2 * GIB,
    "used address space": GIB,
    "used memory": GIB // 4,
    "machine memory": 24 * GIB,
}
TORCH = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
FILES = {"limit open files": 1024, "used open files": 1024}
MAPS = {"limit mappings": 65530, "used mappings": 65530, "machine memory left": GIB}


def reason(
    kind: str, message: str, values: Mapping[str, object], *stack: PythonFrame, source: Path | None = None
) -> LimitReason | None:
    """Of an exception with these numbers; a limit of the stack and of files has every process."""
    held = {"limit stack": 8 << 20, "limit open files": 1024, "used open files": 9, **values}
    report = ExceptionReport(
        type=kind,
        message=message,
        variables=[VariableReport(name=name, value=str(value)) for name, value in held.items()],
    )
    file = str(source) if source is not None else "/nowhere/train.py"
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, environment={}, argv=())
    return limit_reason(snapshot, report, [*stack, PythonFrame(function="load", file=file, line=2)])


@pytest.mark.parametrize(
    ("kind", "message", "values", "words"),
    [
        ("RuntimeError", f"{TORCH}allocate {2 * GIB} bytes. Error code 12", MEMORY, "limited to 2.0 GiB"),
        (
            "_ArrayMemoryError",
            "Unable to allocate 1.61 GiB for an array with shape (3,) and data type float64",
            MEMORY,
            "RLIMIT_AS",
        ),
        ("MemoryError", "", {**MEMORY, "used address space": 2 * GIB - 4096}, "RLIMIT_AS"),
        ("RuntimeError", f"{TORCH}allocate {2 * GIB} bytes", {"limit data": GIB, "used data": 1 << 20}, "RLIMIT_DATA"),
        (
            "RuntimeError",
            "unable to mmap 84 bytes from file </torch_1>: Cannot allocate memory (12)",
            MAPS,
            "vm.max_map_count (65530)",
        ),
        (
            "MemoryError",
            "Unable to allocate 745. GiB for an array",
            {"machine memory": 24 * GIB},
            "more than the whole machine has",
        ),
        (
            "OSError",
            "[Errno 24] Too many open files: 'a.npy'",
            {**FILES, "open files like": "1000 /data/tile_#.raw"},
            "1000 of them for files like /data/tile_#.raw",
        ),
        (
            "RuntimeError",
            "Too many open files. Communication with the workers is no longer possible.",
            {**FILES, "open files like": "900 /torch_#"},
            "tensors in shared memory",
        ),
        (
            "RuntimeError",
            "can't start new thread",
            {"limit pids of the cgroup": 100, "used pids of the cgroup": 100},
            "pids.max",
        ),
        (
            "RuntimeError",
            "can't start new thread",
            {"limit address space": GIB, "used address space": GIB - 4096},
            "RLIMIT_AS",
        ),
        (
            "RuntimeError",
            "can't start new thread",
            {"limit stack": 64 * GIB, "machine memory": 24 * GIB},
            "a stack of 64.0 GiB (RLIMIT_STACK), more than the whole machine has, 24.0 GiB",
        ),
        ("OSError", "[Errno 27] File too large", {"limit file size": 100 << 20}, "limited to 100.0 MiB (RLIMIT_FSIZE"),
        (  # of a file in a temporary folder, which is gone
            "RuntimeError",
            "unexpected pos 4200192 vs 4200084",
            {"limit file size": 8 << 20},
            "limited to 8.0 MiB (RLIMIT_FSIZE",
        ),
    ],
)
def test_exhausted_limit_is_named_with_its_value(
    kind: str, message: str, values: Mapping[str, object], words: str
) -> None:
    """And an advice."""
    found = reason(kind, message, values)
    assert found is not None
    assert words in found.subject
    assert found.advice


@pytest.mark.parametrize(
    ("kind", "message", "values"),
    [
        ("RuntimeError", f"{TORCH}allocate 4096 bytes", MEMORY),  # it would fit
        ("MemoryError", "", MEMORY),
        ("MemoryError", "Unable to allocate 7. GiB for an array", {"machine memory": 24 * GIB}),
        (
            "RuntimeError",
            "unable to mmap 84 bytes from file </x>: Cannot allocate memory (12)",
            {**MAPS, "used mappings": 999},
        ),
        ("OSError", "[Errno 24] Too many open files", {"limit open files": 1024, "used open files": 60}),  # inotify
        ("RuntimeError", "can't start new thread", {"limit pids of the cgroup": 4096, "used pids of the cgroup": 100}),
        ("RuntimeError", "can't start new thread", {"limit threads of the user": 96365, "used threads": 12}),
        ("RuntimeError", "can't start new thread", {"limit stack": 8 << 20, "machine memory": 24 * GIB}),
        ("RuntimeError", "unexpected pos 128 vs 20", {"limit file size": 100 << 20}),  # the size is not known
        ("RuntimeError", "unexpected pos 128 vs 20", {"limit file size": 100 << 20, "file size": 5 << 20}),
        ("OSError", "[Errno 27] File too large", {}),  # of the file system
        ("OSError", "[Errno 28] No space left on device", FILES),
        ("ValueError", "the list is too long", {**FILES, **MEMORY}),
    ],
)
def test_room_that_is_left_accuses_no_limit(kind: str, message: str, values: Mapping[str, object]) -> None:
    """Whatever the message says."""
    assert reason(kind, message, values) is None


def test_full_cgroup_explains_a_fork_and_no_socket() -> None:
    """EAGAIN is also what a socket without data gives."""
    full = {"limit pids of the cgroup": 100, "used pids of the cgroup": 99}
    words = "[Errno 11] Resource temporarily unavailable"
    assert reason("BlockingIOError", words, full, FORK) is not None
    assert reason("BlockingIOError", words, full, SOCKET) is None
    assert reason("BlockingIOError", words, full) is None


def test_threads_that_pile_up_are_named() -> None:
    """By what their names have in common."""
    values = {
        "limit address space": GIB,
        "used address space": GIB,
        "used threads": 522,
        "threads like": "520 Thread-# (copy)",
    }
    found = reason("RuntimeError", "can't start new thread", values)
    assert found is not None
    assert "520 of its 522 threads are `Thread-# (copy)`" in found.subject
    few = reason("RuntimeError", "can't start new thread", {**values, "threads like": "4 Thread-# (copy)"})
    assert few is not None and "Thread-#" not in few.subject + few.advice


def test_container_that_keeps_the_files_is_named() -> None:
    """By its length; no other one, and none where several have it."""
    values = {**FILES, "open files like": "1000 /data/tile_#.raw", "self.handles": "dict of 1000", "rows": "list of 3"}
    found = reason("OSError", "[Errno 24] Too many open files: 'a'", values)
    assert found is not None and "`self.handles` (dict of 1000) most likely keeps them open" in found.advice
    found = reason("OSError", "[Errno 24] Too many open files: 'a'", {**values, "names": "list of 1000"})
    assert found is not None and "most likely keeps" not in found.advice


SETS = "import resource\nload()\nLIMIT = 2 << 30\nresource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SETS, "line 4"),
        (SETS.replace("2 << 30", "int(given)"), "line 4"),  # not known, and the only line that sets it
        (SETS.replace("2 << 30", "4 << 30"), None),  # another limit was in force
        (SETS.replace("RLIMIT_AS", "RLIMIT_CORE"), None),
        (f"{SETS}resource.setrlimit(resource.RLIMIT_AS, (1, 1))\n", None),
        ("import resource\nload()\n", None),
    ],
)
def test_line_that_sets_the_limit_is_named(source: str, line: str | None, tmp_path: Path) -> None:
    """The only one of the program, and only if it sets the value that was in force."""
    file = tmp_path / "train.py"
    file.write_text(source, encoding="utf-8")
    found = reason("RuntimeError", f"{TORCH}allocate {2 * GIB} bytes", MEMORY, source=file)
    assert found is not None
    assert (f"RLIMIT_AS, {line})" in found.subject) == (line is not None), found.subject
    assert (f"aise that limit at {line}" in found.advice) == (line is not None)
    assert ("ulimit -v" in found.advice) == (line is None)


def test_refused_mapping_is_most_likely_one_too_many_where_memory_was_left(tmp_path: Path) -> None:
    """Those before were released when the exception left; a large request may be the memory's."""
    file = tmp_path / "train.py"
    left = {"limit mappings": 65530, "used mappings": 300, "machine memory left": 20 * GIB}
    for text, expected in (("mmap.mmap(-1, 4096)", True), ("mmap.mmap(-1, size)", False), ("numpy.zeros(4096)", False)):
        file.write_text(f"import mmap, numpy\nx = {text}\n", encoding="utf-8")
        found = reason("OSError", "[Errno 12] Cannot allocate memory", left, source=file)
        assert (found is not None and "most likely" in found.subject) is expected, text
    file.write_text("import mmap\nx = mmap.mmap(-1, 4096)\n", encoding="utf-8")
    short = {**left, "machine memory left": 1 << 20}
    assert reason("OSError", "[Errno 12] Cannot allocate memory", short, source=file) is None
    limited = {**left, "limit address space": 9 * GIB, "used address space": GIB}
    assert reason("OSError", "[Errno 12] Cannot allocate memory", limited, source=file) is None
