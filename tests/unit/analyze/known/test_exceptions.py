"""Advice for exceptions by type and message: each entry for its own example, with the words of the message."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.known.exceptions import ExceptionEntry, exception_advice, exception_entries
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary
from tests.support.synth import Box

ENTRIES = exception_entries()
LINE = "train.py:12 in main"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.example[:40] or entry.type[0])
def test_entry_answers_its_own_example(entry: ExceptionEntry) -> None:
    """No entry before it takes it, and all words that it fills in are groups of its expression."""
    kind = entry.type[0] if entry.type else "RuntimeError"
    said = exception_advice(f"torch.{kind}", entry.example, LINE, entry.source_example)
    groups = re.search(entry.message or "", entry.example)
    assert groups is not None and said is not None
    start = re.split(r"\{\w+\}", entry.advice)[0]
    assert said.startswith(start)
    named = set(re.findall(r"\{(\w+)\}", f"{entry.advice} {entry.reason}")) - {"line"}
    assert named <= set(groups.groupdict())
    assert entry.advice.endswith(".") and len(entry.advice) < 450
    assert entry.reason is None or (not entry.reason.endswith(".") and len(entry.reason) < 120)


def test_message_with_braces_is_quoted_as_it_is() -> None:
    """A key may be any text."""
    said = exception_advice("KeyError", "'{line}'", LINE)
    assert said is not None and said.startswith("The key '{line}' is not in what is looked up at train.py:12 in main")


def test_second_of_two_paths_is_the_one_that_exists() -> None:
    """Of `os.symlink(run, "latest")`."""
    said = exception_advice("FileExistsError", "[Errno 17] File exists: 'runs/today' -> 'latest'", LINE)
    assert said is not None and said.startswith("'latest' is already there when train.py:12")


@pytest.mark.parametrize("word", ["a" * 4000, ".so" * 1300, "1," * 2000, "x." * 2000, "'" * 4000, "[" * 4000])
def test_message_of_one_long_word_is_answered_at_once(word: str) -> None:
    """Expressions that try each of its characters took minutes; the end of such a message still counts."""
    assert exception_advice("KeyError", word, LINE) is not None
    told = f"{word[:3000]} libx.so.1: cannot open shared object file"
    assert "libx.so.1" in (exception_advice("ImportError", told, LINE) or "")


@pytest.mark.parametrize("source", [None, 'rows["optimizer"]', "table[config_of(name)]"])
def test_entry_for_a_kind_of_line_needs_that_line(source: str | None) -> None:
    """The look-alikes: an unknown line, and names that are no checkpoint or configuration."""
    said = exception_advice("KeyError", "'optimizer'", LINE, source)
    assert said is not None and said.startswith("The key 'optimizer' is not in what is looked up")


def test_exception_of_the_program_s_own_type_has_no_entry() -> None:
    """The look-alike: its message may have any words."""
    assert exception_advice("app.ShardError", "shard 3 of 4", LINE) is None


def raised(run: Path, line: str, context: tuple[str, str] | None = None) -> Report:
    """The report about a ValueError from this source line, perhaps while another exception was being handled."""
    file = run / "train.py"
    run.mkdir(exist_ok=True)
    file.write_text(f"def main():\n    {line}\n", encoding="utf-8")
    os.utime(file, (1, 1))  # the process of the recording began later
    before = [{"function": "load", "file": s.SCRIPT, "line": 7}]
    of = [{"type": context[0], "message": context[1], "python_stack": before}] if context else []
    seen = [{"name": name, "value": "[2, 3] float32"} for name in ("row", "x1", "self.table")]
    box = Box(pid=101, ppid=99)
    box.exception("ValueError", "no data", [("main", str(file), 2)], context=of, variables=seen).exit(1)
    return build_report(s.load(run, box))


def test_headline_says_what_a_message_means(run: Path) -> None:
    """An entry with a reason; the look-alike has none."""
    box = Box(pid=101, ppid=99).exception(
        "ValueError", "Attempting to unscale FP16 gradients.", [("main", s.SCRIPT, 2)]
    )
    assert "parameters are float16 themselves" in summary(build_report(s.load(run, box.exit(1))))
    assert "float16" not in summary(raised(run / "plain", "x = parse(row)"))


def test_line_is_quoted(run: Path) -> None:
    """It says which values to print."""
    assert "line 2 (`x = parse(row)`)" in advice(raised(run, "x = parse(row)"))


def test_check_of_the_program_is_told_as_one(run: Path) -> None:
    """`raise` was reached by a condition."""
    assert "look at the condition above train.py:2 in main" in advice(raised(run, 'raise ValueError("no data")'))


def test_exception_that_was_raised_for_another_one_has_that_one_s_advice(run: Path) -> None:
    """`except KeyError as error: raise ValueError(...) from error`."""
    said = advice(raised(run, 'raise ValueError("no data") from error', ("KeyError", "'cat'")))
    assert said.startswith("Begin with the first error, at train.py:7 in load: the last one was raised for it.")
    assert "The key 'cat' is not in what is looked up" in said


def test_exception_beside_one_that_was_being_handled_keeps_its_own_advice(run: Path) -> None:
    """The look-alike: an error in an except block, or after an import that was tried."""
    said = advice(raised(run, "x = parse(row)", ("ImportError", "no apex")))
    assert said.startswith("Print the values that line 2 ")
    assert said.endswith("It came while ImportError: no apex at train.py:7 in load was being handled.")


def test_variables_of_the_line_are_shown(run: Path) -> None:
    """Not those that only begin alike."""
    said = evidence(raised(run, "x = parse(row, self.table)"))
    assert "at train.py:2 in main, `row` was [2, 3] float32; `self.table` was [2, 3] float32" in said
    assert "x1" not in said


def test_exception_of_a_worker_has_the_sample_of_that_worker(run: Path) -> None:
    """The look-alike: another worker fails at the same line, before, with a sample of its own."""
    file = run / "data.py"
    run.mkdir(exist_ok=True)
    file.write_text("class Rows:\n    def __getitem__(self, i):\n        return self.rows[i]\n", encoding="utf-8")
    os.utime(file, (1, 1))
    traceback = f'Original Traceback (most recent call last):\n  File "{file}", line 3, in __getitem__\n'
    message = f"Caught ValueError in DataLoader worker process 1.\n{traceback}ValueError: no data\n"
    parent = Box(pid=101, ppid=99).exception("ValueError", message, [("main", s.SCRIPT, 12)]).exit(1)
    workers = []
    for pid, number, sample in ((102, 0, "19"), (103, 1, "5")):
        box = Box(pid=pid, ppid=101).entry_of_worker(number)
        seen = [{"name": "i", "value": sample}]
        frames = [("__getitem__", str(file), 3)]
        workers.append(box.exception("ValueError", "no data", frames, variables=seen, on_its_way="fetch"))
    report = build_report(s.load(run, parent, *workers))
    assert "with sample 5: `dataset[5]` should repeat it" in advice(report)


@pytest.mark.parametrize("below", ["", '  File "/usr/lib/python3.11/statistics.py", line 9, in mean\n'])
def test_exception_of_a_pool_is_explained_by_the_source_alone(below: str, run: Path) -> None:
    """The look-alike: a library below that line raised it."""
    file = run / "rows.py"
    run.mkdir(exist_ok=True)
    file.write_text("def mean(text):\n    words = text.split()\n    return 9 / len(words)\n", encoding="utf-8")
    os.utime(file, (1, 1))
    head = f'Traceback (most recent call last):\n  File "{file}", line 3, in mean\n{below}'
    told = f'"""\n{head}ZeroDivisionError: division by zero\n"""'
    box = Box(pid=101, ppid=99)
    box.exception("ZeroDivisionError", "division by zero", [("main", s.SCRIPT, 12)], remote_traceback=told).exit(1)
    words = advice(build_report(s.load(run, box)))
    assert ("`words` has no elements, so its length is 0" in words) is (not below), words


@pytest.mark.parametrize(
    ("kind", "message", "listed"),
    [
        ("ValueError", "optimizer 'adamww' is not supported, choose from 'adam', 'sgd'", True),
        ("ValueError", "reduction must be one of ['mean', 'sum'], got 'avg'", True),
        ("ValueError", "optimizer 'adamww' is not supported", False),
        ("TypeError", "'<=' not supported between instances of 'float' and 'str'", False),
        ("RuntimeError", "Boolean subtract, the '-' operator, is not supported", False),
        ("RuntimeError", "Unsupported dtype Half for one of the arguments of 'linear'", False),
    ],
)
def test_list_of_a_message_is_named_where_it_has_one(kind: str, message: str, listed: bool) -> None:
    """The look-alikes: a value without a list, types, operators."""
    assert ("the list in the message" in (exception_advice(kind, message, LINE) or "")) == listed


def test_first_exception_comes_first_where_it_would_have_ended_the_run(run: Path) -> None:
    """`finally: close()` fails while it passes; the look-alike above handles it."""
    run.mkdir(exist_ok=True)
    file = run / "train.py"
    file.write_text("try:\n    work()\nfinally:\n    close()\n", encoding="utf-8")
    os.utime(file, (1, 1))
    before = [{"function": "main", "file": str(file), "line": 2}]
    of = [{"type": "KeyError", "message": "'cat'", "python_stack": before}]
    box = Box(pid=101, ppid=99).exception("TypeError", "no file", [("main", str(file), 4)], context=of).exit(1)
    report = build_report(s.load(run, box))
    said = (report.verdict.summary if report.verdict else None) or ""
    assert "raised KeyError: 'cat' at train.py:2 in main, and while that was on its way, TypeError: no file" in said
    assert advice(report).startswith("Begin with the first error, at train.py:2 in main: it ended the run")


@pytest.mark.parametrize(("inner", "says"), [("Words.__call__", True), ("Words.__getitem__", False)])
def test_collate_function_that_fails_is_repeated_with_its_batch(inner: str, says: bool, run: Path) -> None:
    """`dataset[i]` alone would raise nothing; the look-alike failed in the dataset."""
    traceback = f'Original Traceback (most recent call last):\n  File "{s.SCRIPT}", line 3, in x\n'
    message = f"Caught ValueError in DataLoader worker process 0.\n{traceback}ValueError: odd\n"
    parent = Box(pid=101, ppid=99).exception("ValueError", message, [("main", s.SCRIPT, 12)]).exit(1)
    fetch = ("fetch", f"{s.TORCH}/utils/data/_utils/fetch.py", 57)
    held = [{"name": "indices of the batch", "value": "7 5"}]
    worker = Box(pid=102, ppid=101).entry_of_worker(0)
    worker.exception("ValueError", "odd", [(inner, s.SCRIPT, 3), fetch], on_its_way="fetch", variables=held)
    said = advice(build_report(s.load(run, parent, worker)))
    assert ("`collate_fn([dataset[i] for i in (7, 5,)])` should repeat it" in said) == says
    assert ("and at the sample that it was given" in said) != says


@pytest.mark.parametrize("message", ["list index out of range", "another task's"])
def test_exception_of_a_pool_has_the_variables_of_its_process(message: str, run: Path) -> None:
    """The look-alike is the exception of another task at the same line."""
    file = run / "rows.py"
    run.mkdir(exist_ok=True)
    file.write_text("def mean(rows, n):\n    return rows[n]\n", encoding="utf-8")
    os.utime(file, (1, 1))
    head = f'Traceback (most recent call last):\n  File "{file}", line 2, in mean\n'
    told = f'"""\n{head}IndexError: list index out of range\n"""'
    box = Box(pid=101, ppid=99)
    box.exception("IndexError", "list index out of range", [("main", s.SCRIPT, 12)], remote_traceback=told).exit(1)
    held = [{"name": "rows", "value": "list of 2"}, {"name": "n", "value": "5"}]
    child = Box(pid=102, ppid=101)
    child.exception("IndexError", message, [("mean", str(file), 2)], on_its_way="fetch", variables=held)
    words = advice(build_report(s.load(run, box, child)))
    assert ("`rows` has 2 items, and `n` is 5" in words) == (message == "list index out of range"), words
