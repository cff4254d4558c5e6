"""Any address, explained: the process, the storage, and its referrers."""

from __future__ import annotations

from pathlib import Path

import pytest

import pytracer
from pytracer._errors import InputError, UsageError
from pytracer.analyze.where import explain_addresses
from pytracer.decode.types.snapshot import Job
from pytracer.report.where import AddressReport
from tests.support import scenarios as s
from tests.support.synth import Box

BASE = 0x7F50_0000_0000
STACK = (0x7FFC_0000_0000, 0x7FFC_0080_0000)
SP = STACK[0] + 0x1000


def crashed(run: Path) -> Job:
    """A collective reads a storage that was a parameter; registers, stack and memory point into it."""
    box = Box(pid=101).alloc(BASE, 4096, ("build", s.SCRIPT, 7)).later(1)
    box.module("model", [{"fqn": "w", "addr": BASE, "nbytes": 4096}])
    box.collective("gloo:all_reduce", addr=BASE + 1024, storage_addr=BASE, nbytes=1024)
    words = b"".join(word.to_bytes(8, "little") for word in (7, BASE + 64, BASE + 5000))
    memory = [("rsp", SP, SP, words), ("rbx", 0x5555_0000_0040, 0x5555_0000_0000, bytes(64) + words[8:16])]
    registers = {"rsp": SP, "rdi": BASE + 16, "rsi": BASE + 4096, "rbx": 0x5555_0000_0040}
    return s.load(
        run, box.at(500).crash(addr=0x18, registers=registers, native=s.NATIVE[:1], memory=memory, stack=STACK)
    )


def one(job: Job, asked: str | int) -> AddressReport:
    report = explain_addresses(job, [asked])
    assert report.addresses is not None and len(report.addresses) == 1
    return report.addresses[0]


@pytest.mark.parametrize(
    ("asked", "addr"),
    [
        (BASE, BASE), (hex(BASE), BASE), (str(BASE), BASE), ("7f5000000000", BASE), ("rdi", BASE + 16),
        ("RDI+0x10", BASE + 32), ("rdi-16", BASE), ("sp", SP), ("stack+0x8", BASE + 64), ("fault", 0x18),
    ],
)  # fmt: skip
def test_addresses_are_numbers_registers_and_words_of_the_stack(tmp_path: Path, asked: str | int, addr: int) -> None:
    """With offsets, aliases, and the fault address by name."""
    assert one(crashed(tmp_path), asked).addr == hex(addr)


def test_everything_that_held_the_storage_is_told(tmp_path: Path) -> None:
    """Registers, stack, memory near a register, and the collective that uses it; nothing beyond its end."""
    found = one(crashed(tmp_path), BASE + 16)
    assert found.says == f"is 16 bytes into a live storage of 4096 bytes [{BASE:#x}, {BASE + 4096:#x}) (parameter w)"
    assert [(item.what, item.says) for item in found.pointed_by or []] == [
        ("rdi", "holds this address"),
        ("rsi", "points right past the end of the storage"),
        ("stack+0x8", "points 64 bytes into the storage"),
        ("[rbx+0x0]", "points 64 bytes into the storage"),
        ("all_reduce #1", "started: its input began 1024 bytes into the storage"),
    ]


def test_small_numbers_are_held_by_nobody(tmp_path: Path) -> None:
    """They are everywhere."""
    assert one(crashed(tmp_path), "fault").pointed_by == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("nowhere", "'nowhere' is neither an address nor a register; there are r8"),
        ("-5", "'-5' is no address; give 0x7f"),
        ("0x1ffffffffffffffff", "more than 64 bits"),
        ("stack+0x100", "stack+0x100 is no word of the stack that was kept; kept are stack+0x0 to stack+0x10"),
    ],
)
def test_words_that_are_no_address_are_refused_with_what_is(tmp_path: Path, asked: str, says: str) -> None:
    """The message lists the valid values."""
    with pytest.raises(UsageError) as caught:
        one(crashed(tmp_path), asked)
    assert says in str(caught.value)


def test_registers_of_a_process_that_did_not_crash_are_not_known(tmp_path: Path) -> None:
    """Its storages are."""
    job = s.load(tmp_path, Box(pid=101).alloc(BASE, 64).at(9).exit(0))
    report = explain_addresses(job, [BASE])
    assert report.addresses is not None and report.addresses[0].kind == "in-storage"
    assert report.missing == ["the memory map and registers: this process did not crash, or its handler could not run"]
    with pytest.raises(InputError, match="left no crash record"):
        explain_addresses(job, ["rdi"])


def test_process_is_that_of_the_verdict_unless_one_is_named(tmp_path: Path) -> None:
    """Two ranks with different storages at one address."""
    job = s.use_after_free(tmp_path)
    default = explain_addresses(job, [s.BUCKET + 8])
    assert default.process is not None and (default.process.rank, default.process.chosen) == (
        1,
        "the verdict is about it",
    )
    assert default.addresses is not None and default.addresses[0].kind == "freed-storage"
    other = explain_addresses(job, [s.BUCKET + 8], rank=0)
    assert other.process is not None and (other.process.rank, other.process.chosen) == (0, None)
    by_pid = explain_addresses(job, [s.BUCKET + 8], pid=102)
    assert by_pid.process is not None and by_pid.process.rank == 1


def test_wrong_process_is_refused_with_those_there_are(tmp_path: Path) -> None:
    """Ranks and pids are listed, what crashed first."""
    job = s.use_after_free(tmp_path)
    with pytest.raises(InputError, match="there is no rank 5 in .*; it has ranks 0 and 1"):
        explain_addresses(job, [1], rank=5)
    with pytest.raises(InputError, match=r"there is no process 9 in .*; it has rank 1 \(pid 102\), rank 0 \(pid 101\)"):
        explain_addresses(job, [1], pid=9)


def test_several_healthy_processes_ask_for_one(tmp_path: Path) -> None:
    """No verdict names one."""
    job = s.load(tmp_path, s.rank(0).at(10).exit(0), s.rank(1).at(10).exit(0))
    with pytest.raises(UsageError, match=r"name it with --rank N or --pid P; it has rank 0 \(pid 101\)"):
        explain_addresses(job, [1])


def test_python_answers_as_the_command_line_does(tmp_path: Path) -> None:
    """pytracer.where()."""
    crashed(tmp_path)
    report = pytracer.where(str(tmp_path), BASE + 16, "rdi")
    first, second = report.addresses or []
    assert (first.says, first.storage) == (second.says, second.storage)


def test_box_of_a_large_job_is_read_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read lightly, it has no storages: the process in question is read again in full."""
    s.use_after_free(tmp_path)
    monkeypatch.setattr("pytracer.decode.job.merge.FULL_BOXES", 1)
    report = pytracer.where(str(tmp_path), s.BUCKET + 8, rank=1)
    assert [item.kind for item in report.addresses or []] == ["freed-storage"]
    assert report.missing == []
