"""Limits of the process at an exception: only of one whose words are those of an exhausted limit."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.record.torch import descriptors
from pytracer.record.torch.limits import limits_at, of_limits

_EXHAUSTED = """
import json, sys
from pytracer.record.torch import descriptors, limits
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64 if sys.argv[1] == "equal" else resource.RLIM_INFINITY
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] == resource.RLIM_INFINITY
    else resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
before = resource.getrlimit(resource.RLIMIT_NOFILE)
held = []
try:
    while True:
        held.append(open(sys.argv[2]))
except OSError as error:
    with descriptors.room_for_files(error):
        found = limits.limits_at(error)
print(json.dumps([{item["name"]: item["value"] for item in found},
    before == resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def exhausted(hard: str, path: Path) -> tuple[dict[str, str], bool]:
    """What is recorded of a process without a free descriptor, and whether its limit is as it was."""
    path.write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _EXHAUSTED, hard, str(path)], capture_output=True, check=True, text=True
    )
    facts, same = json.loads(done.stdout)
    return facts, same


@pytest.mark.parametrize("hard", ["equal", "higher"])
def test_open_files_are_counted_without_a_free_descriptor(hard: str, tmp_path: Path) -> None:
    """By kind; where the limit can be raised for a moment, memory as well. The program's limit is what is recorded."""
    facts, same = exhausted(hard, tmp_path / "tile_0012.raw")
    assert same
    assert (facts["limit open files"], facts["used open files"]) == ("64", "64")
    count, _, kind = facts["open files like"].partition(" ")
    assert int(count) > 50
    assert kind == f"{tmp_path}/tile_#.raw" or "#" in kind


def test_memory_error_has_sizes_and_counts() -> None:
    """Of the process itself and the machine."""
    facts = {item["name"]: int(item["value"]) for item in limits_at(MemoryError()) if " like" not in item["name"]}
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    assert facts.get("limit address space") == (None if soft == resource.RLIM_INFINITY else soft)
    assert facts["used address space"] >= facts["used memory"] > 0
    assert facts["used mappings"] > 10
    assert facts["used threads"] >= 1
    assert facts["machine memory"] > facts["machine memory left"] > 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (OSError(errno.ENOENT, "No such file or directory"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), False),
        (KeyError("memory"), False),
        (RuntimeError(12, "CUDA error"), False),
    ],
)
def test_only_errors_of_limits_are_asked_about(error: Exception, expected: bool) -> None:
    """The look-alikes: other errors of files, and of shapes."""
    assert of_limits(error) is expected
    assert bool(limits_at(error)) is expected


def test_first_error_of_a_chain_counts() -> None:
    """One of a cleanup hides it."""
    error = ValueError("cleanup")
    error.__context__ = MemoryError()
    assert of_limits(error)


def test_nothing_is_recorded_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """--no-values."""
    monkeypatch.setattr("pytracer.record.torch.limits.records_values", lambda: False)
    assert limits_at(MemoryError()) == []


def test_code_of_the_program_does_not_run() -> None:
    """An error class with properties of its own."""

    class Own(OSError):
        @property
        def errno(self) -> int:  # type: ignore[override]
            raise AssertionError

        @property
        def args(self) -> tuple[object, ...]:  # type: ignore[override]
            raise AssertionError

        def __str__(self) -> str:
            raise AssertionError

    assert limits_at(Own(errno.EMFILE, "Too many open files"))


def test_limit_of_files_is_left_alone_by_other_errors() -> None:
    """No system call that changes it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with descriptors.room_for_files(MemoryError()):
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
