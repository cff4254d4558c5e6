"""A forked child that waits for threads which a native library has in its parent alone, and what looks like one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze import engine
from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.waits.used_before_fork import used_before_fork
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.decode.types.snapshot import NativeFrame
from pytracer.report.job import PythonFrame, Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, parent, stopped
from tests.support.synth import Box, Frame

FORKS = "/usr/lib/python3.11/multiprocessing/popen_fork.py"
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
OWN = "/home/user/job/libfast.so"
POLL: list[Frame] = [("Connection.poll", "/usr/lib/python3.11/multiprocessing/connection.py", 257)]
PROGRAM = """import ctypes
class Tokenizer:
    def __init__(self):
        self.lib = ctypes.CDLL("./libfast.so")
    def encode(self, text):
        return self.lib.encode_text(text.encode("utf-8"), len(text))
class Texts(Dataset):
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
    def __getitem__(self, index):
        return self.tokenizer.encode(self.texts[index])
def main():
    tokenizer = Tokenizer()
    data = Texts(tokenizer)
    {}
    loader = DataLoader(data, num_workers=2)
    for batch in loader:
        step(batch)
main()
"""
PACKAGE = """class Texts(Dataset):
    def __init__(self, tok, texts):
        self.tok = tok
    def __getitem__(self, index):
        return self.tok.encode(self.texts[index])
tokenizer = Tokenizer.from_file("a.json")
print(len(tokenizer.encode(corpus[0])))
data = Texts(tokenizer, corpus)
for batch in DataLoader(data, num_workers=2):
    step(batch)
"""
WAITS = [(s.LIBC, "__futex_abstimed_wait_common"), (s.LIBC, "pthread_cond_wait"), (OWN, "encode_text")]
CALLED = [("/usr/lib/libffi.so.8", "ffi_call"), (s.PYTHON, "_PyEval_EvalFrameDefault")]


def program(run: Path, line: str) -> str:
    file = run / "train.py"
    file.write_text(PROGRAM.replace("{}", line), encoding="utf-8")
    os.utime(file, (0, 0))
    return str(file)


def frames(file: str) -> list[Frame]:
    """Of a worker that line 17 forked."""
    child: list[Frame] = [("Tokenizer.encode", file, 6), ("Texts.__getitem__", file, 11)]
    return [*child, ("Popen._launch", FORKS, 71), ("DataLoader.__iter__", LOADER, 505), ("main", file, 17)]


def used(run: Path, line: str) -> tuple[int | None, str] | None:
    file = program(run, line)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=1 << 62)
    stack = [PythonFrame(*item) for item in [*frames(file), ("<module>", file, 19)]]
    found = used_before_fork(snapshot, stack, ["encode_text"])
    assert found is None or found.forked.line == 17
    return (found.at.line, found.text) if found is not None else None


@pytest.mark.parametrize(
    "line",
    [
        "tokenizer.encode('a')",
        "first = data[0]",
        "tokenizer.lib.encode_text(b'a', 1)",
    ],
)
def test_call_that_leads_to_the_same_native_code_before_the_fork_is_found(line: str, run: Path) -> None:
    found = used(run, line)
    assert found is not None and found[0] == 15 and found[1] in line


def test_object_of_a_package_is_known_by_the_names_that_it_is_passed_as(run: Path) -> None:
    """No function of the program is around its native method."""
    file = run / "train.py"
    file.write_text(PACKAGE, encoding="utf-8")
    os.utime(file, (0, 0))
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=1 << 62)
    own: list[Frame] = [("Texts.__getitem__", str(file), 5), *frames(str(file))[2:4], ("<module>", str(file), 9)]
    stack = [PythonFrame(*item) for item in own]
    found = used_before_fork(snapshot, stack, ["rayon_core::latch::wait"])
    assert found is not None and (found.at.line, found.text) == (7, "tokenizer.encode(corpus[0])")


@pytest.mark.parametrize(
    "line",
    [
        "pass",
        "name = 'a'.encode('utf-8')",  # of a string
        "rows = table[0]",  # of another object
        "lengths = [lambda: tokenizer.encode('a')]",  # not called there
        "if args.test: return tokenizer.encode('a')",  # leaves: no fork comes behind it
        "other.lib.count(b'a')",
    ],
)
def test_nothing_is_found_where_the_parent_did_not_use_it(line: str, run: Path) -> None:
    """The look-alikes."""
    assert used(run, line) is None


def hung(run: Path, line: str, native: Sequence[tuple[str, str]] = WAITS, *, forked: bool = True) -> Report:
    """A worker below these native functions."""
    file = program(run, line)
    box = Box(pid=102, ppid=101, created_ns=6_000_000_000)
    box = box.at(-500 if forked else 10).versions(torch="2.13.0").at(100).mark("begin")
    asks: list[Frame] = [("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), ("main", file, 17)]
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    worker = stopped(box, [*frames(file), ("<module>", file, 19)])
    job = s.load(run, root, stopped(parent(), asks), worker)
    own = tuple(
        NativeFrame(0x1000 + n, image, 0x1000, None, "unwound", name)
        for n, (image, name) in enumerate([*native, *CALLED])
    )

    def with_stack(process: Any) -> Any:
        box = process.snapshot
        if box.pid != 102:
            return process
        return replace(process, snapshot=replace(box, ending=replace(box.ending, native_stack=own)))

    return build_report(replace(job, processes=tuple(map(with_stack, job.processes))))


def test_worker_waits_for_threads_of_a_library_that_the_parent_used(run: Path) -> None:
    report = hung(run, "tokenizer.encode('a')")
    assert verdict(report) == ("hang", "likely")
    assert (
        "waited in encode_text() of libfast.so, in a forked child, for threads of that library that its parent alone "
        "has, at train.py:6 in Tokenizer.encode; line 15 (`tokenizer.encode('a')`) had used it in the parent before "
        "line 17 forked"
    ) in summary(report)
    assert 'pass `multiprocessing_context="spawn"` at line 16' in advice(report)
    assert "move what line 15 does with it into the workers" in advice(report)


def test_fork_is_the_line_that_is_marked_behind_the_use(run: Path) -> None:
    """At the fork the threads are lost: what used the library before it is shown above."""
    report = hung(run, "tokenizer.encode('a')")
    assert report.verdict is not None
    assert [item.line for item in report.verdict.code or ()] == [15, 17]


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("pass", {}),  # the workers used it first, and have its threads
        ("tokenizer.encode('a')", {"forked": False}),
        ("tokenizer.encode('a')", {"native": [(OWN, "encode_text")]}),  # it computes
        ("tokenizer.encode('a')", {"native": [*WAITS[:2], (s.TORCH_CPU, "at::native::add"), WAITS[2]]}),
        ("tokenizer.encode('a')", {"native": [*WAITS[:2], ("/usr/lib/python3.11/lib-dynload/_x.so", "wait")]}),
    ],
)
def test_other_waits_are_none_for_lost_threads(line: str, how: dict[str, Any], run: Path) -> None:
    """The look-alikes."""
    assert "forked child" not in summary(hung(run, line, **how))


@pytest.mark.parametrize(("cpu", "works"), [(1.0, False), (45.0, True), (None, False)])
def test_child_whose_threads_compute_is_at_work(
    cpu: float | None, works: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the processor time of its 50 s."""
    seen = SeenProcess(102, 0, 0, 50_000_000_000, cpu_seconds=cpu)
    monkeypatch.setattr(engine, "_seen", lambda *_: seen)
    assert ("forked child" in summary(hung(run, "tokenizer.encode('a')"))) != works
