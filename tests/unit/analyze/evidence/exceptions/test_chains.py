"""Which exception of a chain is the reason: by the handler between the first and the last one."""

from __future__ import annotations

import textwrap
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytracer.analyze.evidence.exceptions.chains import Chain, chain_of, found_its_way
from pytracer.analyze.evidence.failing.explained import explained
from pytracer.analyze.parts import exception_report
from pytracer.decode.types.journal import UncaughtException
from pytracer.record.torch.exceptions import _chain
from pytracer.report.job import ExceptionReport

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**15)


def raised(folder: Path, source: str) -> ExceptionReport:
    """What a recording has of the error that the program ends with."""
    file = folder / "train.py"
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "__main__"})  # noqa: S102
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[:0:-1][:64]
        stack = [{"function": item.name, "file": item.filename, "line": item.lineno} for item in frames]
        data = {"type": type(error).__name__, "message": str(error), "python_stack": stack, "context": _chain(error)}
        return exception_report(msgspec.convert(data, UncaughtException))
    raise AssertionError


def chain(folder: Path, source: str) -> Chain | None:
    """The chain of that error."""
    report = raised(folder, source)
    return chain_of(SNAPSHOT, report, report.python_stack or [])


FAILED = """
def load(text):
    try:
        rows = len(text)
        return int(text) // rows
    except {caught}:
        {handled}

def other():
    return [][0]

load("7x")
"""


@pytest.mark.parametrize(
    ("caught", "handled", "how"),
    [
        ("ValueError as error", 'raise RuntimeError("no data") from error', "worded anew"),
        ("Exception", "print(txt)", "failed handler"),  # a name that there is not
        ("ValueError", "print(txt)", "failed handler"),
        ("Exception", "print(txt)\n        raise", "on its way"),
        ("Exception", 'return load(text + "x")', "tried again"),
        ("Exception", "return [][0]", "failed handler"),
        ("Exception", "return int(list(text))", None),  # it tries the same with something else
        ("Exception", "return other()", None),  # it goes on in another function of the program
        ("ValueError", "return [][0]", None),  # the program goes on by another way, and fails there
    ],
)
def test_handler_that_fails_leads_to_the_first_exception(
    caught: str, handled: str, how: str | None, tmp_path: Path
) -> None:
    """Of an endless retry it is the error of the tries, not the limit that each of them struck."""
    found = chain(tmp_path, FAILED.format(caught=caught, handled=handled))
    assert (found.how if found is not None else None) == how
    if found is not None:
        assert found.first.type == "ValueError"
        assert "ValueError: invalid literal" in found.headline("KeyError: 2", None)
        assert ("train.py:6" in found.headline("KeyError: 2", None)) == (how in ("failed handler", "tried again"))


def test_file_that_there_is_not_yet_is_no_reason_of_what_the_handler_does(tmp_path: Path) -> None:
    """The first run of a program that resumes; where it words the error anew, the file is the reason."""
    source = "try:\n    print('resume')\n    open('/no/such/file')\nexcept Exception as error:\n    {}\n"
    assert chain(tmp_path, source.format("start()")) is None
    found = chain(tmp_path, source.format("raise RuntimeError('no data') from error"))
    assert found is not None
    assert found.how == "worded anew"


EXPECTED = [
    'try:\n    value = {}["a"]\nexcept KeyError:\n    value = made\n',
    "try:\n    import no_such_module\nexcept Exception:\n    no_such_fallback()\n",
    "class Model:\n    pass\ntry:\n    size = Model().hidden\nexcept:\n    size = width\n",
    'try:\n    batch = next(iter([]))\nexcept StopIteration:\n    raise RuntimeError("no batch")\n',
    "import queue\ntry:\n    item = queue.Queue().get_nowait()\nexcept queue.Empty:\n    item = made\n",
]


@pytest.mark.parametrize("source", EXPECTED)
def test_exception_by_which_a_program_finds_its_way_is_no_reason(source: str, tmp_path: Path) -> None:
    """A miss of a cache, an import with a fallback, the end of an iterator."""
    report = raised(tmp_path, source)
    assert chain_of(SNAPSHOT, report, report.python_stack or []) is None
    assert found_its_way(SNAPSHOT, report, report.python_stack or [])


def test_error_that_is_raised_from_another_one_outside_of_its_handler(tmp_path: Path) -> None:
    """As after the last one of several tries."""
    source = (
        "try:\n    int('x')\nexcept ValueError as error:\n    last = error\nraise RuntimeError('gave up') from last\n"
    )
    found = chain(tmp_path, source)
    assert found is not None
    assert found.how == "worded anew"


def test_error_after_the_handler_is_one_of_its_own(tmp_path: Path) -> None:
    """And one raised from None."""
    assert chain(tmp_path, "try:\n    int('x')\nexcept Exception:\n    pass\nprint(made)\n") is None
    assert chain(tmp_path, "try:\n    int('x')\nexcept Exception:\n    raise KeyError(1) from None\n") is None


def test_recursion_in_a_handler_that_tries_nothing_again(tmp_path: Path) -> None:
    """The look-alike of a retry: what the handler calls has no end by itself."""
    source = """
    def describe(n):
        return describe(n + 1)

    try:
        [int("x")]
        pass
    except Exception:
        describe(0)
    """
    assert chain(tmp_path, source) is None


def test_limit_that_strikes_before_the_line_that_tries_again(tmp_path: Path) -> None:
    """At the random number that the handler draws first."""
    source = """
    import random

    def load(items, index):
        try:
            index += 0
            return len(items[index])
        except Exception:
            other = index + len(items) - len(items)
            other = draw(items)
            return load(items, other)

    def draw(items, deep=3):
        return random.randrange(len(items)) if deep == 0 else draw(items, deep - 1)

    load([1, 2], 0)
    """
    found = chain(tmp_path, source)
    assert found is not None
    assert found.how == "tried again"
    assert "train.py:7 in load" in found.headline("RecursionError", None)


def test_first_exception_is_explained_by_its_own_variables(tmp_path: Path) -> None:
    """Those of the frame that it left, not of the handler."""
    torch = pytest.importorskip("torch")
    assert torch
    source = """
    import torch

    def forward(x, weight):
        return x @ weight

    try:
        print("forward")
        forward(torch.ones(2, 3), torch.ones(4, 5))
    except RuntimeError as error:
        log.error(error)
    """
    report = raised(tmp_path, source)
    found = chain_of(SNAPSHOT, report, report.python_stack or [])
    assert found is not None
    told = found.report(report, report.python_stack or [])
    said = explained(SNAPSHOT, told, told.python_stack or [])
    assert said.subject is not None
    assert "`x`" in said.subject
    assert "3 columns" in said.subject


def test_end_of_an_iterator_inside_of_a_generator_is_the_reason(tmp_path: Path) -> None:
    """`generator raised StopIteration` names the line that runs the generator; the next() inside counts."""
    found = chain(
        tmp_path,
        """
        def pairs(stream):
            while True:
                yield next(stream), next(stream)
        for pair in pairs(iter([1, 2, 3])):
            pass
        """,
    )
    assert found is not None and (found.first.type, found.how) == ("StopIteration", "worded anew")
    assert found.headline("RuntimeError: generator raised StopIteration", None).endswith(
        ", for StopIteration at train.py:4 in pairs"
    )


def test_other_error_of_a_generator_is_its_own_reason(tmp_path: Path) -> None:
    """The look-alike: a StopIteration that the generator expected, before it failed otherwise."""
    found = chain(
        tmp_path,
        """
        def pairs(stream):
            try:
                first = next(stream)
            except StopIteration:
                first = None
                yield len(first)
        for pair in pairs(iter([])):
            pass
        """,
    )
    assert found is None
