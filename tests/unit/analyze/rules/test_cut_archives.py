"""abort: a TorchScript archive that could not be written to its end, and other destructors that throw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.recording.names import Names
from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, advice, died, summary, verdict
from tests.support.synth import Box

ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101}
TERMINATE: list[tuple[str | None, str | None]] = [
    (LIBC_SO, "raise"),
    (LIBC_SO, "abort"),
    (STDCPP, "std::terminate()"),
]
END = "caffe2::serialize::PyTorchStreamWriter::writeEndOfFile()"
CUT = "[enforce fail at inline_container.cc:672] . unexpected pos 298560 vs 298448"
PROGRAM = """import torch
class Exporter:
    def export(self, net, path):
        try:
            {0}
        except {1}:
            print("not saved")
"""


def aborted(
    run: Path,
    call: str,
    caught: str = "RuntimeError",
    what: str = CUT,
    function: str = END,
    *,
    program: str = PROGRAM,
    **how: Any,
) -> Report:
    script = str(s.program_in(run, program.format(call, caught)))
    return died(
        run,
        **ABORT,
        **how,
        python=[("save", f"{s.TORCH}/jit/_script.py", 772), ("Exporter.export", script, 5)],
        stack_of=[*TERMINATE, (s.TORCH_CPU, function)],
        cpp_exceptions=[CppException(tid=101, type="c10::Error", what=what)],
    )


@pytest.mark.parametrize(
    ("call", "model"),
    [("net.save(path)", "net"), ("torch.jit.save(net, path)", "net"), ("net.save(str(path))", "net")],
)
def test_archive_that_was_cut_names_the_full_disk_and_the_line(call: str, model: str, run: Path) -> None:
    report = aborted(run, call)
    assert verdict(report) == ("abort", "certain")
    assert f"the file of `{call}` could not be written to its end" in summary(report)
    assert "most likely because its file system is full" in summary(report)
    assert "which `except RuntimeError` (line 6) cannot catch" in summary(report)
    assert advice(report).startswith("Make room where line 5 writes")
    assert f"torch.jit.save({model}, buffer)" in advice(report)


SETS = """import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, -1))
"""


TENSOR, SMALL = 0x7F00_0000_0000, 0x7F20_0000_0000


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the parameters of the process are."""
    found: list[int] = []
    monkeypatch.setattr(
        Names,
        "read",
        lambda _: {
            base: (NamedTensor(f"parameter {base}", "parameter", base, base, 4096, 1, earlier=False),) for base in found
        },
    )
    return found


def below_limit(
    run: Path, limit: int | None, tensor: int, sets: str = "", *, seen: bool = True, program: str = PROGRAM
) -> Report:
    """The record of the archive that failed began at byte 298560; the largest live tensor has `tensor` bytes."""
    box = Box(pid=101, ppid=99).live(TENSOR, tensor).live(SMALL, 4096).freed(0x7F10_0000_0000, 1 << 30)
    item = {"pid": 101, "start_ticks": box.start_ticks, "first_mono_ns": 1, "cgroup": "/job"}
    item |= {"alive_mono_ns": box.created_ns + 10**6, "gone_mono_ns": box.created_ns + 10**9}
    item |= {"limits": {"file size": [limit, None]} if limit is not None else None}
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5}
    witness = {"before": counters, "after": counters, "ended": True, "processes": [item], "first_pid_namespace": True}
    launcher = {"witness": witness} if seen else None
    return aborted(run, "net.save(path)", program=program + sets, box=box, launcher=launcher)


def test_parameter_that_goes_beyond_the_limit_of_a_file_names_the_limit(run: Path, named: list[int]) -> None:
    """Not the disk, which may have room: `next` is to raise the limit."""
    named += [TENSOR]
    report = below_limit(run, 1 << 20, 800_000)
    assert (
        "most likely because this process may write no more than 1.0 MiB for each file (RLIMIT_FSIZE), and the next "
        "tensor behind the first 291.6 KiB went beyond that; torch throws"
    ) in summary(report)
    assert "file system" not in summary(report)
    assert advice(report).startswith("Raise that limit where the job is started (`ulimit -f`")
    assert "df -h" not in advice(report)


def test_tensor_without_a_name_may_be_of_the_saved_model(run: Path) -> None:
    """Where no parameter has one: the full disk is named as well."""
    report = below_limit(run, 1 << 20, 800_000)
    assert "may write no more than 1.0 MiB for each file (RLIMIT_FSIZE), and the next tensor" in summary(report)
    assert "may go beyond that, or because its file system is full; torch throws" in summary(report)
    assert advice(report).startswith("Raise that limit where the job is started (`ulimit -f`")
    assert "If the file would be smaller than the limit, make room on its disk (`df -h`)" in advice(report)


def test_tensor_of_no_parameter_does_not_go_beyond_the_limit(run: Path, named: list[int]) -> None:
    """The look-alike: a large tensor of data, beside a model that fits."""
    named += [SMALL]
    report = below_limit(run, 1 << 20, 800_000, SETS.format(limit="1 << 20"))
    assert "most likely because its file system is full, or a quota or the limit of a file's size" in summary(report)
    assert advice(report).startswith("Make room where line 5 writes")


def test_line_that_sets_the_limit_of_a_file_is_named(run: Path) -> None:
    report = below_limit(run, 1 << 20, 800_000, SETS.format(limit="1 << 20"))
    assert "1.0 MiB for each file (RLIMIT_FSIZE, line 9)" in summary(report)
    assert advice(report).startswith("Raise that limit at line 9 (`resource.setrlimit(resource.RLIMIT_FSIZE")


@pytest.mark.parametrize(
    ("limit", "tensor"),
    [(1 << 20, 700_000), (1 << 30, 800_000), (200_000, 800_000), (None, 800_000)],
    ids=["every tensor fits", "far away", "written beyond it", "no limit"],
)
def test_limit_that_no_tensor_reaches_is_not_why(limit: int | None, tensor: int, run: Path) -> None:
    """The look-alikes: the disk was full before."""
    report = below_limit(run, limit, tensor)
    assert "most likely because its file system is full" in summary(report)
    assert "RLIMIT_FSIZE" not in summary(report)
    assert advice(report).startswith("Make room where line 5 writes")


@pytest.mark.parametrize(
    ("limit", "seen", "named"),
    [("args.most", False, True), ("args.most", True, False), ("resource.RLIM_INFINITY", False, False)],
    ids=["by the source alone", "not in force", "lifted"],
)
def test_limit_that_only_the_source_has_is_one_of_the_causes(limit: str, seen: bool, named: bool, run: Path) -> None:
    """Where no launcher saw the process."""
    report = below_limit(run, None, 800_000, SETS.format(limit=limit), seen=seen)
    assert ("the limit of a file's size, which line 9 sets, is used up" in summary(report)) is named
    assert ("the limit that line 9 sets (`resource.setrlimit(" in advice(report)) is named
    assert "its file system is full" in summary(report)


OWN = """import resource
class Exporter:
    def export(self, net, path):
        {sets}
        net.save(path)
        {after}
{more}
"""
SET = "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, -1))"


@pytest.mark.parametrize(
    ("sets", "after", "more", "is_named"),
    [
        (SET.format("most"), "pass", "", True),
        (SET.format("most"), SET.format("soft"), "", True),
        (f"if most: {SET.format('most')}", "pass", "", False),
        ("pass", SET.format("soft"), "", False),
        (f"{SET.format('most')}; {SET.format('soft')}", "pass", "", False),
        (SET.format("resource.RLIM_INFINITY"), "pass", "", False),
        (SET.format("most"), "pass", f"def lift(): {SET.format('soft')}", False),
        ("pass", "pass", f"def limit(): {SET.format('most')}", False),
    ],
    ids=["before", "and back", "below an if", "behind", "lifted", "infinite", "also elsewhere", "elsewhere"],
)
def test_limit_that_the_same_function_set_last(sets: str, after: str, more: str, is_named: bool, run: Path) -> None:
    """The launcher saw none, as that was earlier."""
    program = OWN.format(sets=sets, after=after, more=more)
    report = below_limit(run, None, 800_000, program=program)
    assert ("the limit of a file's size, which line 4 sets, is used up" in summary(report)) is is_named
    assert "its file system is full" in summary(report)


def test_limit_that_the_same_function_set_has_its_number(run: Path, named: list[int]) -> None:
    named += [TENSOR]
    report = below_limit(run, None, 800_000, program=OWN.format(sets=SET.format("1 << 20"), after="pass", more=""))
    assert "no more than 1.0 MiB for each file (RLIMIT_FSIZE, line 4), and the next tensor" in summary(report)


def test_error_of_another_writer_is_no_cut_archive(run: Path) -> None:
    """The look-alikes: the same words from another function, and another error of the same writer."""
    other = aborted(run, "net.save(path)", function="own::Archive::close()")
    assert "file system" not in summary(other)
    named = aborted(run, "net.save(path)", what="[enforce fail at inline_container.cc:588] . invalid file name")
    assert "file system" not in summary(named)
    assert "nobody caught c10::Error" in summary(named)


@pytest.mark.parametrize(
    ("function", "of_destructor"), [("own::Guard::~Guard()", True), ("own::Guard::close()", False)]
)
def test_destructor_that_throws_is_to_catch_it(function: str, of_destructor: bool, run: Path) -> None:
    report = aborted(run, "net.save(path)", what="unexpected state", function=function)
    assert ("No exception may leave a destructor" in advice(report)) == of_destructor
