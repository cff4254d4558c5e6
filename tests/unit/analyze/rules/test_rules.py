"""Each rule: a case that fires and a look-alike that must not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.platform import instruction
from pytracer.report.job import Finding, Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, memory
from tests.support.synth import NOBODY, Box

PYTHON_MAPPING = (0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, s.PYTHON)
STORAGE = 0x7F40_0000_0000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "boxes").mkdir()
    return tmp_path


def finding(report: Report, rule: str) -> Finding | None:
    return next((item for item in report.findings or [] if item.id == rule), None)


def verdict(report: Report) -> tuple[str | None, str | None]:
    assert report.verdict is not None
    return report.verdict.class_, report.verdict.confidence


def crash(run: Path, box: Box | None = None, **more: Any) -> Report:
    box = box or Box(pid=101, ppid=99)
    more = {"python": s.BACKWARD[:1], "native": s.NATIVE[:2], "mappings": [PYTHON_MAPPING], **more}
    return build_report(s.load(run, box.at(500).crash(**more)))


# use-after-free


def test_use_after_free_names_bucket_parameter_and_places(run: Path) -> None:
    """The demo's verdict has bucket, module, generation, offset, and both call sites."""
    report = build_report(s.use_after_free(run))
    assert verdict(report) == ("use-after-free", "certain")
    assert report.verdict is not None and report.verdict.rank == 1
    assert report.verdict.summary == (
        "Rank 1 read freed memory, at train.py:41 in Peek.backward: "
        "81920 bytes into DDP bucket 0 of model (generation 0), "
        "which DDP released when it rebuilt its buckets."
    )
    victim = next(item for item in report.processes or [] if item.rank == 1)
    assert victim.fault is not None and victim.fault.kind == "freed-storage"
    bucket, storage = victim.fault.bucket, victim.fault.storage
    assert bucket is not None and (bucket.index, bucket.generation, bucket.parameter) == (0, 0, "layers.0.in_proj")
    assert storage is not None and storage.names == ["DDP bucket 0 of model (generation 0)"]
    assert storage.freed is not None and storage.freed.caller is not None and storage.freed.caller.line == 84
    assert storage.freed.python is not None and storage.freed.python.line == 1641
    assert storage.allocated is not None and storage.allocated.caller is not None
    assert victim.python_stack is not None and victim.python_stack[0].line == 41
    assert victim.last_collective is not None and victim.last_collective.state == "started"
    assert victim.last_collective.buffer is not None and victim.last_collective.buffer.bucket_index == 0


def test_use_after_free_does_not_fire_when_the_memory_lives_again(run: Path) -> None:
    """A freed storage whose address was reused is no use after free."""
    box = Box(pid=101, ppid=99).freed(STORAGE, 1 << 20).later(10).alloc(STORAGE, 1 << 20)
    report = crash(run, box, addr=STORAGE + 64)
    assert finding(report, "use-after-free") is None
    assert verdict(report) == ("unknown", "unknown")


def test_use_after_free_does_not_fire_in_a_named_mapping(run: Path) -> None:
    """A library that was mapped where a storage had been is not that storage."""
    box = Box(pid=101, ppid=99).freed(STORAGE, 1 << 20)
    report = crash(run, box, addr=STORAGE + 64, code=2, mappings=[(STORAGE, STORAGE + 4096, "r-xp", 0, "/lib/libx.so")])
    assert finding(report, "use-after-free") is None


def test_use_after_free_is_only_possible_when_memory_is_still_mapped(run: Path) -> None:
    """A refused access to anonymous memory that is mapped again proves little."""
    box = Box(pid=101, ppid=99).freed(STORAGE, 1 << 20)
    report = crash(run, box, addr=STORAGE + 64, code=2, mappings=[(STORAGE, STORAGE + 4096, "---p", 0, "")])
    assert verdict(report) == ("use-after-free", "possible")


def test_use_after_free_of_a_plain_storage_says_where_it_was_freed(run: Path) -> None:
    """Without a bucket, the line that freed it makes the sentence."""
    box = Box(pid=101, ppid=99)
    box.alloc(STORAGE, 1 << 20, box.code("make", s.SCRIPT, 10)).free(STORAGE, box.code("drop", s.SCRIPT, 20))
    report = crash(run, box, addr=STORAGE + 64)
    assert report.verdict is not None
    assert report.verdict.summary == (
        "Process 101 (train.py) touched freed memory, at train.py:41 in Peek.backward: "
        "64 bytes into a storage of 1.0 MiB, "
        "which was released at train.py:20 in drop."
    )


# unmapped-memory


def test_memory_that_was_given_back_names_who_did_it(run: Path) -> None:
    """The last call of munmap() around the address, with its Python line."""
    box = Box(pid=101, ppid=99)
    by = box.stack(box.code("close", s.SCRIPT, 10))
    report = crash(run, box, addr=STORAGE + 8192, unmapped=(STORAGE, 256, 0, 101, by))
    assert verdict(report) == ("use-after-free", "likely")
    assert report.verdict is not None
    assert report.verdict.summary == (
        "Process 101 (train.py) touched memory that had been unmapped, at train.py:41 in Peek.backward: "
        "train.py:10 in close gave it back less than 1 ms before."
    )


def test_memory_that_is_there_again_was_not_unmapped(run: Path) -> None:
    """Whatever refuses the access to what is mapped there now, it is not that call."""
    now = (STORAGE, STORAGE + (1 << 20), "---p", 0, "")
    report = crash(
        run, addr=STORAGE + 8192, code=2, unmapped=(STORAGE, 256, 0, 101, NOBODY), mappings=[PYTHON_MAPPING, now]
    )
    assert finding(report, "unmapped-memory") is None


def test_first_byte_of_a_hole_may_be_the_end_of_a_loop(run: Path) -> None:
    """Memory that may be accessed ends there."""
    below = (STORAGE - 4096, STORAGE, "rw-p", 0, "")
    mappings = [PYTHON_MAPPING, below]
    report = crash(run, addr=STORAGE + 8, unmapped=(STORAGE, 256, 0, 101, NOBODY), mappings=mappings)
    found = finding(report, "unmapped-memory")
    assert found is not None and found.confidence == "possible"
    report = crash(run, addr=STORAGE + 80, unmapped=(STORAGE, 256, 0, 101, NOBODY), mappings=mappings)
    assert verdict(report) == ("use-after-free", "likely")


def test_tensor_beside_a_hole_is_overrun_at_its_first_byte_only(run: Path) -> None:
    """Files are mapped beside tensors: farther inside the hole, the address belongs to what was unmapped."""
    box = Box(pid=101, ppid=99).alloc(STORAGE - (1 << 20), 1 << 20).later(1)
    report = crash(run, box, addr=STORAGE + 15, unmapped=(STORAGE, 256, 0, 101, NOBODY))
    assert report.verdict is not None and report.verdict.class_ == "out-of-bounds"
    report = crash(run, box, addr=STORAGE + 150, unmapped=(STORAGE, 256, 0, 101, NOBODY))
    assert verdict(report) == ("use-after-free", "likely")


def test_recording_that_took_the_hole_hides_nothing(run: Path) -> None:
    """The handler makes its file after the fault; SEGV_MAPERR says that nothing was there."""
    own = (STORAGE, STORAGE + (1 << 22), "rw-s", 0, "/runs/boxes/h.101.blackbox")
    report = crash(run, addr=STORAGE + 8192, unmapped=(STORAGE, 256, 0, 101, NOBODY), mappings=[PYTHON_MAPPING, own])
    assert verdict(report) == ("use-after-free", "likely")


# out-of-bounds


def test_out_of_bounds_names_distance_and_tensor(run: Path) -> None:
    """Behind the end of a named, live storage."""
    box = Box(pid=101, ppid=99).alloc(STORAGE, 1 << 20).later(1)
    box.module("model", [{"fqn": "w", "role": "parameter", "addr": STORAGE, "nbytes": 1 << 20}])
    report = crash(run, box, addr=STORAGE + (1 << 20) + 15)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert report.verdict is not None
    assert (
        report.verdict.summary == "Process 101 (train.py) touched out of bounds, at train.py:41 in Peek.backward: "
        "15 bytes past the end of parameter w in read_sum."
    )


def test_out_of_bounds_knows_before_from_past(run: Path) -> None:
    """An access below the first byte."""
    report = crash(run, Box(pid=101, ppid=99).alloc(STORAGE, 1 << 20), addr=STORAGE - 8192)
    assert verdict(report) == ("out-of-bounds", "possible")
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.kind == "before-storage" and fault.storage is not None
    assert fault.storage.distance_bytes == 8192 and fault.storage.found == "guessed"


def test_out_of_bounds_does_not_fire_far_away(run: Path) -> None:
    """A storage megabytes away is unrelated: the pointer is wild."""
    report = crash(run, Box(pid=101, ppid=99).alloc(STORAGE, 1 << 20), addr=STORAGE + (64 << 20))
    assert finding(report, "out-of-bounds") is None
    assert verdict(report) == ("wild-pointer", "likely")


def test_out_of_bounds_does_not_fire_in_another_mapping(run: Path) -> None:
    """A read-only file next to a storage is that file."""
    box = Box(pid=101, ppid=99).alloc(STORAGE, 4096)
    mapping = (STORAGE + 4096, STORAGE + 8192, "r--p", 0, "/data/x.bin")
    report = crash(run, box, addr=STORAGE + 4100, code=2, mappings=[mapping])
    assert finding(report, "out-of-bounds") is None
    assert verdict(report) == ("unknown", "unknown")


# null-dereference and wild-pointer


@needs_capstone
def test_null_that_is_indexed_so_far_that_no_address_is_left_was_null(run: Path) -> None:
    """movss xmm0, dword ptr [rdi + rsi*4] with rdi = 0: what malloc() returned for a size that cannot be had."""
    code, registers = bytes.fromhex("f30f1004b7"), {"rdi": 0, "rsi": 0x0008_5B85_F4B8_4373, "trapno": 13}
    report = crash(run, addr=0, code=128, code_bytes=code, registers=registers)
    assert verdict(report) == ("null-dereference", "certain")


@needs_capstone
def test_null_dereference_is_certain_when_the_base_register_is_null(run: Path) -> None:
    """mov rax, [rdi + 0xb0] with rdi = 0."""
    report = crash(run, addr=0xB0, code_bytes=s.LOAD_MEMBER, registers={"rdi": 0, "trapno": 14})
    assert verdict(report) == ("null-dereference", "certain")
    assert report.verdict is not None
    assert (
        report.verdict.summary == "Process 101 (train.py) read through a null pointer plus 176 bytes in read_sum"
        ", at train.py:41 in Peek.backward."
    )


@needs_capstone
def test_constant_address_is_a_null_pointer_that_the_compiler_knew(run: Path) -> None:
    """mov rax, [8]: no register forms the address."""
    report = crash(run, addr=8, code_bytes=bytes.fromhex("488b042508000000"), registers={"rdi": 1, "trapno": 14})
    assert verdict(report) == ("null-dereference", "likely")
    assert report.verdict is not None and any("a constant in" in item for item in report.verdict.evidence or [])


@needs_capstone
def test_constant_address_beyond_the_first_page_is_not_null(run: Path) -> None:
    """mov rax, [0x600000]: an address that the program chose."""
    code = bytes.fromhex("488b042500006000")
    assert finding(crash(run, addr=0x600000, code_bytes=code, registers={"trapno": 14}), "null-dereference") is None


@needs_capstone
def test_null_dereference_does_not_fire_for_a_small_garbage_base(run: Path) -> None:
    """torch's DETAIL crash: 0x331 looks like null plus an offset, but the base register holds 0x281."""
    report = build_report(s.detail(run))
    assert finding(report, "null-dereference") is None
    assert verdict(report) == ("wild-pointer", "certain")
    wild = finding(report, "wild-pointer")
    assert wild is not None and wild.ranks == [0, 1]
    assert "c10d::Logger::set_env_variables" in (wild.summary or "")
    assert "no collective was open" in (wild.evidence or [])
    assert "Unset TORCH_DISTRIBUTED_DEBUG" in (wild.advice or "")
    assert [item.primary for item in report.processes or [] if item.role == "rank"] == [True, True]


@needs_capstone
def test_known_crash_is_recognised_even_when_its_garbage_looks_aligned(run: Path) -> None:
    """The garbage pointer of torch's DETAIL crash differs from run to run."""
    assert verdict(build_report(s.detail(run, garbage=0x60))) == ("wild-pointer", "certain")


@needs_capstone
def test_member_of_a_null_object_is_only_possibly_null(run: Path) -> None:
    """The caller already added an offset to null: an aligned, small base that is not null itself."""
    report = crash(run, addr=0x10 + 0xB0, code_bytes=s.LOAD_MEMBER, registers={"rdi": 0x10, "trapno": 14})
    assert verdict(report) == ("null-dereference", "possible")


def test_without_a_disassembler_an_odd_address_is_still_not_null(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not aligned: no member of a null object lies at 0x331. The missing operands are named."""
    monkeypatch.setattr(instruction, "disassembler", lambda: None)
    monkeypatch.setattr("pytracer.analyze.evidence.phrases.disassembler", lambda: None)
    report = build_report(s.detail(run))
    assert verdict(report)[0] == "wild-pointer"
    wild = finding(report, "wild-pointer")
    assert wild is not None and "disasm" in "".join(wild.missing or [])


def test_without_a_disassembler_a_small_aligned_address_is_possibly_null(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weaker, since the operands are unknown."""
    monkeypatch.setattr(instruction, "disassembler", lambda: None)
    report = crash(run, addr=0xB0, code_bytes=s.LOAD_MEMBER, registers={"rdi": 0, "trapno": 14})
    assert verdict(report) == ("null-dereference", "possible")


@pytest.mark.parametrize(("error_code", "access"), [(4, "read"), (6, "write"), (20, "execute")])
def test_access_is_what_the_processor_said(run: Path, error_code: int, access: str) -> None:
    """By the page fault's error code, without machine code and so without a disassembler."""
    report = crash(run, addr=0x10, registers={"trapno": 14}, error_code=error_code)
    assert [process.fault.access for process in report.processes or [] if process.fault] == [access]


def test_null_function_pointer_is_a_null_dereference(run: Path) -> None:
    """A jump to address 0."""
    report = crash(run, addr=0, pc=0, registers={"trapno": 14}, error_code=20)
    assert verdict(report) == ("null-dereference", "certain")
    assert report.verdict is not None and "called a function through a null pointer" in (report.verdict.summary or "")


@needs_capstone
def test_address_that_none_can_be_is_certainly_wild_only_where_memory_held_it(run: Path) -> None:
    """Else it may be the sum of a pointer and an index, which overwrote both; so may a word of the stack."""
    how: dict[str, Any] = {"addr": 0, "code": 128, "code_bytes": s.LOAD_FLOAT}
    heap, stack = 0x5600_0000_0000, 0x7FFD_0000_0100
    how["mappings"] = [(heap, heap + 4096, "rw-p", 0, ""), (stack - 0x100, stack + 4096, "rw-p", 0, "[stack]")]
    wild, registers = 0xDEAD_BEEF_0000_0000, {"rax": 0xDEAD_BEEF_0000_0000, "rsp": stack, "trapno": 13}
    for at, register, confidence in ((heap, "rdi", "certain"), (stack, "rsp", "likely")):
        block = memory(at, 7, wild, register=register)
        report = died(run, registers=registers, sp=stack, memory=(block,), **how)
        assert verdict(report) == ("wild-pointer", confidence)


@needs_capstone
def test_non_canonical_address_comes_from_the_operands(run: Path) -> None:
    """The processor does not report it: SI_KERNEL and address 0, which must not be taken for null."""
    report = crash(
        run, addr=0, code=128, code_bytes=s.LOAD_FLOAT, registers={"rax": 0xDEAD_BEEF_0000_0000, "trapno": 13}
    )
    assert verdict(report) == ("wild-pointer", "likely")
    fault = (report.processes or [])[0].fault
    assert fault is not None and (fault.kind, fault.addr) == ("non-canonical", "0xdeadbeef00000000")


def test_non_canonical_address_is_unknown_without_operands(run: Path) -> None:
    """No code bytes, no address: reported as unknown, not as null."""
    report = crash(run, addr=0, code=128, registers={"trapno": 13})
    assert verdict(report) == ("wild-pointer", "likely")
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.addr is None


def test_wild_pointer_does_not_fire_on_a_sent_signal(run: Path) -> None:
    """kill -SEGV from another process is not a fault; the sender is named."""
    report = crash(run, addr=0, code=0, sender_pid=4242)
    assert verdict(report) == ("external-kill", "certain")
    assert report.verdict is not None and "sent by process 4242" in (report.verdict.summary or "")
    assert (report.processes or [])[0].fault is None


def test_signal_sent_to_itself_stays_unknown(run: Path) -> None:
    """os.kill(os.getpid(), SIGSEGV) touches no memory."""
    report = crash(run, addr=0, code=0, sender_pid=101)
    assert verdict(report) == ("unknown", "unknown")
    assert report.verdict is not None and "sent SIGSEGV to itself" in (report.verdict.summary or "")


# abort


def test_abort_says_uncaught_exception_and_where(run: Path) -> None:
    """std::terminate on the way to abort, called by gloo's transport."""
    runtime = [(s.LIBC, 0x3400), (s.LIBC, 0x3300), (s.LIBSTDCXX, 0x4400), (s.LIBSTDCXX, 0x4500), (s.LIBSTDCXX, 0x4550)]
    report = crash(run, signal=6, code=-6, sender_pid=101, native=[*runtime, (s.TORCH_CPU, 0x4600)])
    assert verdict(report) == ("abort", "certain")
    assert report.verdict is not None
    assert report.verdict.summary == (
        "Process 101 (train.py) aborted, at train.py:41 in Peek.backward: "
        "a C++ exception was not caught, below gloo::transport::tcp::Pair::read."
    )


def test_abort_in_malloc_is_heap_corruption(run: Path) -> None:
    """The C library found its heap damaged."""
    report = crash(run, signal=6, code=-6, sender_pid=101, native=[(s.LIBC, 0x3400), (s.LIBC, 0x5600)])
    assert verdict(report) == ("heap-corruption", "likely")


def test_abort_does_not_fire_when_another_process_sent_it(run: Path) -> None:
    """kill -ABRT, as watchdogs do."""
    report = crash(run, signal=6, code=0, sender_pid=77)
    assert finding(report, "abort") is None
    assert verdict(report) == ("external-kill", "certain")


# python-exception


def test_python_exception_names_type_message_and_line(run: Path) -> None:
    """The innermost line outside torch is the place."""
    box = Box(pid=101, ppid=99)
    box.exception("ValueError", "bad shape\nmore", [("view", f"{s.TORCH}/_tensor.py", 5), ("main", s.SCRIPT, 12)])
    report = build_report(s.load(run, box.exit(1)))
    assert verdict(report) == ("python-exception", "certain")
    assert report.verdict is not None
    assert report.verdict.summary == "Process 101 (train.py) raised ValueError: bad shape at train.py:12 in main."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "\n        An attempt was made before the\n        current process is ready.\n\n   More.",
            "before the current process is ready at",
        ),
        ("no shard:\n  first of all", "ValueError: no shard: first of all at"),
        ("no shard\n  First of all", "ValueError: no shard at"),
    ],
)
def test_sentence_that_goes_on_in_the_next_line_is_whole(message: str, words: str, run: Path) -> None:
    """Indented texts are broken anywhere; another sentence is another line."""
    box = Box(pid=101, ppid=99).exception("ValueError", message, [("main", s.SCRIPT, 12)])
    report = build_report(s.load(run, box.exit(1)))
    assert report.verdict is not None and words in (report.verdict.summary or "")


@pytest.mark.parametrize(
    ("other", "words"), [("size 40", " (rank 1's message; that of rank 0 differs)"), ("size 64", "")]
)
def test_message_of_one_rank_is_not_said_of_all(other: str, words: str, run: Path) -> None:
    """Where another one has other numbers."""
    at = [("main", s.SCRIPT, 12)]
    ranks = [Box(pid=101 + rank, ppid=99, rank=rank).at(5_000 - rank) for rank in range(2)]
    for box, message in zip(ranks, (other, "size 64"), strict=True):
        box.exception("ValueError", message, at)
    report = build_report(s.load(run, *(box.exit(1) for box in ranks)))
    assert report.verdict is not None
    assert report.verdict.summary == f"Ranks 0 and 1 raised ValueError: size 64{words} at train.py:12 in main."


def test_advice_speaks_of_other_ranks_only_where_their_errors_followed(run: Path) -> None:
    """A job of one process has no other ranks."""
    box = Box(pid=101, ppid=99).exception("ValueError", "bad shape", [("main", s.SCRIPT, 12)])
    report = build_report(s.load(run, box.exit(1)))
    assert report.verdict is not None
    assert (report.verdict.advice or "").startswith("Print the values that line 12 works on")
    assert "other ranks" not in (report.verdict.advice or "")


@pytest.mark.parametrize("signal", [6, 11])
def test_python_exception_is_the_cause_when_tearing_down_ends_in_a_signal(run: Path, signal: int) -> None:
    """A rank that raises does not destroy its process group, and gloo's threads may abort it at shutdown."""
    box = Box(pid=101, ppid=99).exception("ValueError", "shard 3 has 0 rows", [("read_shard", s.SCRIPT, 12)])
    code = -6 if signal == 6 else 1
    report = crash(run, box, signal=signal, code=code, sender_pid=101 if signal == 6 else 0)
    assert verdict(report) == ("python-exception", "certain")
    assert report.verdict is not None
    assert (
        report.verdict.summary
        == "Process 101 (train.py) raised ValueError: shard 3 has 0 rows at train.py:12 in read_shard."
    )
    assert any("later, while it was shutting down" in item for item in report.verdict.evidence or [])
    assert [item.id for item in report.findings or []] == ["python-exception"]


def test_python_exception_does_not_fire_when_the_program_went_on(run: Path) -> None:
    """It was caught after all: training steps were recorded after it."""
    box = Box(pid=101, ppid=99).exception("ValueError", "caught", [("main", s.SCRIPT, 12)]).later(5).step(7)
    report = crash(run, box, addr=0x10)
    assert finding(report, "python-exception") is None
    assert finding(report, "null-dereference") is not None


def test_python_exception_does_not_fire_for_a_plain_exit(run: Path) -> None:
    """sys.exit(3) leaves no exception: an honest unknown."""
    report = build_report(s.load(run, Box(pid=101, ppid=99).at(50).exit(3)))
    assert finding(report, "python-exception") is None
    assert verdict(report) == ("unknown", "unknown")
    assert report.verdict is not None
    assert report.verdict.summary == "Process 101 (train.py) ended with exit status 3 and no recorded exception."


def exits(run: Path, *requests: int, code: int = 3, **more: object) -> Report:
    """A process that asked for its end with each of these statuses, the last time in the function `last`."""
    box = Box(pid=101, ppid=99).at(50)
    for number, status in enumerate(requests):
        name = "last" if number == len(requests) - 1 else "earlier"
        box.exit_request(status, [(name, s.SCRIPT, 20 + number), ("main", s.SCRIPT, 12)], **more)  # type: ignore[arg-type]
    return build_report(s.load(run, box.exit(code)))


def test_exit_of_a_python_program_names_its_line(run: Path) -> None:
    """The last request counts; earlier ones were caught."""
    report = exits(run, 3, 3, message="no data\nat all")
    assert verdict(report) == ("exit", "certain")
    assert report.verdict is not None
    words = "ended itself with exit status 3: SystemExit, no data, was raised at train.py:21 in last."
    assert report.verdict.summary == f"Process 101 (train.py) {words}"


@pytest.mark.parametrize(("requests", "code"), [((2,), 3), ((3, 2), 3), ((3,) * 32, 3)])
def test_exit_request_that_was_caught_is_not_the_end(run: Path, requests: tuple[int, ...], code: int) -> None:
    """Another status, or so many that the last ones were not recorded."""
    assert verdict(exits(run, *requests, code=code)) == ("unknown", "unknown")


def test_exit_request_of_a_parent_is_not_the_childs(run: Path) -> None:
    """A forked child has its parent's journal."""
    parent = Box(pid=99, ppid=1).at(50).exit_request(3, [("main", s.SCRIPT, 12)])
    assert verdict(build_report(s.load(run, parent.fork(101).at(60).exit(3)))) == ("unknown", "unknown")


def test_error_that_a_program_ended_itself_for_is_the_cause(run: Path) -> None:
    """`except` that ends in sys.exit(1): likely, for the program decided so."""
    frames = [{"function": "load", "file": s.SCRIPT, "line": 7}]
    report = exits(run, 1, code=1, context=[{"type": "KeyError", "message": "'train'", "python_stack": frames}])
    assert verdict(report) == ("python-exception", "likely")
    assert report.verdict is not None
    assert "raised KeyError: 'train' at train.py:7 in load, and ended itself" in (report.verdict.summary or "")
    assert "exit status 1 at train.py:20 in last while handling it" in (report.verdict.summary or "")
    assert "write `raise`" in advice(report)


def test_error_that_a_program_ended_itself_for_is_explained_by_its_line(run: Path, tmp_path: Path) -> None:
    """As if it had reached the top."""
    file = tmp_path / "data.py"
    file.write_text("size = 128\npick = rng.choice(len(points), size, replace=False)\n", encoding="utf-8")
    os.utime(file, (1, 1))
    message = "Cannot take a larger sample than population when 'replace=False'"
    frames = [{"function": "<module>", "file": str(file), "line": 2}]
    report = exits(run, 1, code=1, context=[{"type": "ValueError", "message": message, "python_stack": frames}])
    assert report.verdict is not None
    assert "`size`, 128, is more than `len(points)`, and ended itself" in (report.verdict.summary or "")
    assert "`size` (line 1: `size = 128`)" in advice(report)


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_an_end_that_was_on_its_way_is_no_error(run: Path, kind: str) -> None:
    """`except KeyboardInterrupt: sys.exit(3)`."""
    assert verdict(exits(run, 3, context=[{"type": kind, "message": "", "python_stack": []}])) == ("exit", "certain")


def test_refused_command_line_is_named(run: Path) -> None:
    """argparse's frames lead to sys.exit(); what it refused is in the exception that it handled."""
    parser = [("ArgumentParser.exit", "/usr/lib/python3.11/argparse.py", 2617), ("main", s.SCRIPT, 12)]
    message = "argument --lr: invalid float value: 'high'"
    context = [{"type": "argparse.ArgumentError", "message": message, "python_stack": []}]
    box = Box(pid=101, ppid=99).at(50).exit_request(2, parser, context=context)
    report = build_report(s.load(run, box.exit(2)))
    assert verdict(report) == ("exit", "certain")
    assert report.verdict is not None
    assert f"argparse refused the command line ({message}) at train.py:12 in main" in (report.verdict.summary or "")


def test_interruption_is_not_an_exception_of_the_program(run: Path) -> None:
    """Ctrl-C."""
    box = Box(pid=101, ppid=99).exception("KeyboardInterrupt", "", [("main", s.SCRIPT, 12)])
    report = build_report(s.load(run, box.exit(130)))
    assert finding(report, "python-exception") is None
    assert verdict(report) == ("external-kill", "likely")
    assert report.verdict is not None and "interrupted" in (report.verdict.summary or "")


@pytest.mark.parametrize(
    ("before", "expected"), [("KeyboardInterrupt", "external-kill"), ("KeyError", "python-exception")]
)
def test_exception_that_an_interruption_met_on_its_way_is_the_interruption(
    before: str, expected: str, run: Path
) -> None:
    """Ctrl-C in Condition.wait(): its `with` releases a lock that it lacks. Another exception before it is none."""
    context = [{"type": before, "message": "", "python_stack": []}]
    error = ("RuntimeError", "release unlocked lock", [("next_shard", s.SCRIPT, 12)])
    report = build_report(s.load(run, Box(pid=101, ppid=99).exception(*error, context=context).exit(1)))
    assert verdict(report)[0] == expected


# everything else


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"signal": 4, "code": 2}, ("illegal-instruction", "likely")),
        ({"signal": 8, "code": 1}, ("arithmetic", "certain")),
        ({"signal": 8, "code": -6, "sender_pid": 101}, ("unknown", "unknown")),
        ({"addr": 0x7F00_0000_0FF0, "stack": (0x7F00_0000_1000, 0x7F00_0080_0000)}, ("stack-overflow", "certain")),
    ],
)
def test_signals_that_speak_for_themselves(run: Path, more: dict[str, Any], expected: tuple[str, str]) -> None:
    """SIGILL and SIGFPE from the kernel; the guard page of a stack. The same signal, sent, proves nothing."""
    assert verdict(crash(run, **more)) == expected


def test_bus_error_behind_the_end_of_a_file_is_a_truncated_mapping(run: Path) -> None:
    """The file is shorter now than what was mapped."""
    data = run / "data.bin"
    data.write_bytes(b"x" * 100)
    mapping = (STORAGE, STORAGE + 65536, "r--p", 0, str(data))
    report = crash(run, signal=7, code=2, addr=STORAGE + 8192, mappings=[mapping])
    assert verdict(report) == ("truncated-mapping", "likely")


def test_bus_error_inside_a_file_is_not_a_truncated_mapping(run: Path) -> None:
    """The file still holds that byte."""
    data = run / "data.bin"
    data.write_bytes(b"x" * 16384)
    mapping = (STORAGE, STORAGE + 65536, "r--p", 0, str(data))
    report = crash(run, signal=7, code=2, addr=STORAGE + 8192, mappings=[mapping])
    assert verdict(report) == ("unknown", "unknown")


def test_sigkill_is_unknown_and_says_what_is_missing(run: Path) -> None:
    """Nothing in the process distinguishes the OOM killer from kill -9."""
    report = build_report(s.load(run, s.agent((102, {"signal": 9})), s.rank(1).at(500)))
    assert verdict(report) == ("unknown", "unknown")
    death = finding(report, "sigkill")
    assert death is not None and "OOM" in (death.advice or "") and death.missing


def test_memory_fault_without_a_crash_record_cannot_be_decided(run: Path) -> None:
    """The parent recorded SIGSEGV, the process nothing: rules about addresses cannot decide."""
    report = build_report(s.load(run, s.agent((102, {"signal": 11})), s.rank(1).at(500)))
    assert verdict(report) == ("unknown", "unknown")
    results = {item.id: item.result for item in report.checked or []}
    assert results["use-after-free"] == results["wild-pointer"] == "cannot-decide"


def test_clean_run_is_clean(run: Path) -> None:
    """A helper with a nonzero status is no death."""
    report = build_report(s.clean(run))
    assert verdict(report) == ("clean", "certain")
    assert report.findings == []
    assert {item.result for item in report.checked or []} == {"not-found"}


def test_step_that_the_handler_gave_up_is_told(run: Path) -> None:
    """A stack that is missing because its step faulted differs from an empty stack."""
    report = crash(run, addr=0x10, steps_faulted=1 << 4)
    notes = [note for process in report.processes or [] for note in process.notes or []]
    assert notes == ["the crash handler's step NATIVE_STACK met a fault: what it should have written is incomplete"]
