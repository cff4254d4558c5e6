"""Files that one process read while another one was still writing them, and files that nobody was writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary
from tests.support.scenarios import program_in
from tests.support.synth import Box

SOURCE = """import os, torch
def load(name):
    path = name + ".pt"
    if os.path.exists(path):
        return torch.load(path)
    with open(path, "wb") as file:
        torch.save(make(name), file)
    return make(name)
def make(name):
    return work(name)
def other(name):
    with open("index.json", "w") as file:
        file.write(make(name))
def index():
    with open("/data/a.pt", "wb") as file:
        file.write(make("a"))
load("/data/a")
"""
FILE = {"file": "/data/a.pt", "file of path": "/data/a.pt", "file size": "0", "file age": "0", "file kind": "empty"}
MAKES = [("make", 10), ("load", 7), ("<module>", 17)]
UNPICKLES = [("load", "/usr/lib/python3.11/site-packages/torch/serialization.py", 1626)]


def read(
    run: Path,
    stack: list[tuple[str, int]] = MAKES,
    *,
    facts: dict[str, str] | None = None,
    began: int = 100,
    ended: int = 2000,
    writers: int = 1,
    source: str = SOURCE,
    line: tuple[str, int] = ("load", 5),
    raised: tuple[str, str] = ("EOFError", ""),
) -> Report:
    """Rank 0 read the file and raised at 1000 ms; the other ranks were ended later, at those lines."""
    program = str(program_in(run, source))
    values = [{"name": name, "value": value} for name, value in {**FILE, **(facts or {})}.items()]
    reads = s.rank(0).at(1000)
    last = len(source.splitlines())
    trace = [*UNPICKLES, (line[0], program, line[1]), ("<module>", program, last)]
    reads.exception(*raised, trace, variables=values)
    reads.exit(1)
    boxes: list[Box] = []
    for number in range(1, 1 + writers):
        box = s.rank(number).at(ended).signal_seen(15, 100, ["torchrun"])
        frames = [(name, program, line) for name, line in stack]
        boxes.append(box.crash(0, code=0, state=6, python=frames, native=[(s.LIBC, 0x10)]))
    ends: list[tuple[int, dict[str, Any]]] = [(101, {"exit_code": 1}), *((item.pid, {"signal": 15}) for item in boxes)]
    return build_report(s.load(run, s.agent(*ends, at=ended + 1000), reads, *boxes))


def test_process_that_was_still_writing_the_file_is_named(run: Path) -> None:
    """By the same variable of the same function: the line that opens it, and the one that takes it for finished."""
    report = read(run)
    assert (
        "a.pt is empty (0 bytes): rank 1 was probably still writing it (line 6 opens it, line 7 fills it)"
    ) in summary(report)
    assert advice(report).startswith("Line 4 takes a file that is there for a finished one. Let line 6 write under")
    assert "os.replace()" in advice(report)


def test_writer_elsewhere_is_known_by_the_name_of_the_file(run: Path) -> None:
    """Another function writes it, whose source has the path."""
    said = summary(read(run, [("make", 10), ("index", 16), ("<module>", 17)]))
    assert "rank 1 was probably still writing it (line 15 opens it, line 16 fills it)" in said


LOADS = 'load("/data/a")\n'
INDEX: dict[str, Any] = {"stack": [("make", 10), ("index", 16), ("<module>", 17)]}


def test_path_that_the_source_does_not_show_is_said_so(run: Path) -> None:
    """The same variable of the same function, of a parameter that is not known."""
    said = summary(read(run, source=SOURCE.replace(LOADS, "load(names[0])\n")))
    assert "rank 1 may still have been writing it (line 6 opens it, line 7 fills it)" in said


@pytest.mark.parametrize(
    "given",
    ['"/data/" + os.environ["RANK"]', 'f"/data/{rank}"', 'environ["NAME"]', 'os.path.join("/data", name_of(pid))'],
)
def test_path_of_each_process_is_not_that_of_another(given: str, run: Path) -> None:
    """The look-alike: each rank has a file of its own."""
    assert "writing it" not in summary(read(run, source=SOURCE.replace(LOADS, f"load({given})\n")))


def test_file_of_that_name_in_another_folder_is_another_one(run: Path) -> None:
    """The look-alike: only the name is the same."""
    assert "writing it" not in summary(read(run, source=SOURCE.replace("/data/a.pt", "/other/a.pt"), **INDEX))


def test_stack_of_much_later_says_nothing_of_the_read(run: Path) -> None:
    """The writer may have come there since."""
    assert "writing it" in summary(read(run, ended=50_000))
    assert "writing it" not in summary(read(run, ended=901_000))


@pytest.mark.parametrize(
    "how",
    [
        {"stack": [("make", 10), ("other", 13), ("<module>", 17)]},
        {"stack": [("make", 10), ("load", 8), ("<module>", 17)]},
        {"facts": {"file age": "7200"}},
        {"facts": {"file kind": "zip", "file size": "4096"}},
        {"ended": 900},
        {"writers": 2},
    ],
    ids=["another file", "behind the block", "old", "whole", "ended before", "two writers"],
)
def test_file_that_no_other_process_was_writing_is_only_broken(how: dict[str, Any], run: Path) -> None:
    """Its writer may have been ended half way."""
    assert "still writing it" not in summary(read(run, **how))


POLLS = """import os, time, torch
def table(path, rank):
    if rank == 0:
        with open(path, "wb") as file:
            torch.save(make(path), file)
    else:
        while not os.path.exists(path):
            time.sleep(0.1)
    return torch.load(path, mmap=True)
def fit(model):
    model()
path = os.path.join(folder, "a.pt")
table(path, rank)
fit(model)
"""
MAGIC = "mmap can only be used with files saved with `torch.save(a.pt, ...)"
RECORDED: dict[str, Any] = {
    "source": POLLS,
    "stack": [("fit", 11), ("<module>", 14)],
    "line": ("table", 9),
    "raised": ("RuntimeError", MAGIC),
    "facts": {"file written by": "102"},
}


def recorded(run: Path, **other: Any) -> Report:
    """Rank 0 polled for the file; rank 1 had it open then, and has gone on to fit() since."""
    return read(run, **{**RECORDED, "facts": {**RECORDED["facts"], **other.pop("facts", {})}, **other})


def test_writer_that_has_gone_on_since_is_known_from_the_moment_of_the_read(run: Path) -> None:
    """The reader recorded that its process had the file open: for sure, with the lines of the source."""
    report = recorded(run)
    assert summary(report).endswith(
        "a.pt is empty (0 bytes): rank 1 still had it open for writing (line 4 opens it, line 5 fills it)."
    )
    assert advice(report).startswith(
        "Line 7 waits only until the file is there, not until it is whole. Let all ranks call dist.barrier() behind "
        "the writing in its place; or let line 4 write under another name, and os.replace() it to a.pt when it is "
        "whole."
    )
    assert "_use_new_zipfile_serialization" not in advice(report)


def test_function_that_polls_for_the_file_is_named_by_its_call(run: Path) -> None:
    """`wait_for(path)`, by what it does."""
    source = POLLS.replace(
        "        while not os.path.exists(path):\n            time.sleep(0.1)\n", "        met(path)\n\n"
    )
    source = source.replace(
        "def fit(model):", "def met(name):\n    while not os.path.isfile(name): pass\ndef fit(model):"
    )
    assert advice(recorded(run, source=source)).startswith("Line 7 waits only until the file is there")


def test_cut_file_of_a_kind_without_an_end_is_incomplete_where_it_was_open(run: Path) -> None:
    """Half a pickle: its kind does not show it, the error and the open descriptor do."""
    cut = {"file kind": "pickle", "file size": "2048"}
    raised = ("UnpicklingError", "pickle data was truncated")
    assert "a.pt is incomplete (2048 bytes): rank 1 still had it open" in summary(
        recorded(run, facts=cut, raised=raised)
    )
    facts = {**cut, "file written by": ""}
    assert "open for writing" not in summary(recorded(run, facts=facts, raised=raised))


def test_open_file_is_no_reason_for_another_error(run: Path) -> None:
    """The look-alike: a whole file that another process has open, such as a log or a mapped table."""
    raised = ("RuntimeError", "Error(s) in loading state_dict for Net")
    facts = {"file kind": "zip", "file size": "4096"}
    assert "open for writing" not in summary(recorded(run, facts=facts, raised=raised))


@pytest.mark.parametrize(
    ("message", "cut"),
    [
        ("Extra data: line 2 column 1 (char 41)", False),
        ("Expecting ',' delimiter: line 1 column 9 (char 8)", False),
        ("Expecting value: line 9 column 1 (char 2048)", True),
        ("Unterminated string starting at: line 9 column 1 (char 2040)", True),
    ],
)
def test_json_that_is_wrong_before_its_end_is_not_called_incomplete(message: str, cut: bool, run: Path) -> None:
    """A log with a value to a line, which its writer keeps open: it would not be JSON when it is whole."""
    facts = {"file kind": "text", "file size": "2048"}
    assert ("open for writing" in summary(recorded(run, facts=facts, raised=("JSONDecodeError", message)))) == cut


@pytest.mark.parametrize("pids", ["", "7777", "102,7777", "102,103"])
def test_file_that_no_other_known_process_had_open_has_no_writer(pids: str, run: Path) -> None:
    """The look-alikes: nobody, a process of another job, and two."""
    said = summary(recorded(run, facts={"file written by": pids}, writers=2))
    assert "open for writing" not in said
    assert "a.pt is empty (0 bytes)" in said


def test_lines_are_not_named_where_two_can_have_written_it(run: Path) -> None:
    """Who had it open is still known."""
    source = POLLS.replace(
        'path = os.path.join(folder, "a.pt")', 'path = os.path.join(folder, "a.pt"); open(path, "w")'
    )
    assert summary(recorded(run, source=source)).endswith("rank 1 still had it open for writing.")


def test_reader_that_still_had_it_open_for_writing_itself(run: Path) -> None:
    """Another of its threads, or a file that is not closed; no other process has to do with it."""
    report = recorded(run, facts={"file written by": "101"})
    assert "a.pt is empty (0 bytes): this process itself still had it open for writing (line 4 opens it)" in summary(
        report
    )
    assert "what line 4 opens must be closed: join() the thread that writes it, or leave its `with`" in advice(report)


@pytest.mark.parametrize(("mode", "told"), [("rb", True), ("a+b", False)])
def test_file_that_is_read_by_what_may_write_it_is_no_other(mode: str, told: bool, run: Path) -> None:
    """It reads at its end."""
    source = POLLS.replace("            time.sleep(0.1)\n", f"            pass\n    f = open(path, {mode!r})\n")
    source = source.replace("    return torch.load(path, mmap=True)\n", "    return torch.load(f)\n")
    line = source.splitlines().index("    return torch.load(f)") + 1
    facts = {"file written by": "101", "file held by": "f"}
    report = recorded(run, source=source, facts=facts, line=("table", line))
    assert ("this process itself still had it open" in summary(report)) is told
