"""abort: a TorchScript archive that could not be written to its end, and other destructors that throw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.journal import CppException
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, advice, died, summary, verdict

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


def aborted(run: Path, call: str, caught: str = "RuntimeError", what: str = CUT, function: str = END) -> Report:
    script = str(s.program_in(run, PROGRAM.format(call, caught)))
    return died(
        run,
        **ABORT,
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
