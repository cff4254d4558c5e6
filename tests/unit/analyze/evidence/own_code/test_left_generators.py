"""A call behind the `yield` of a generator, and the loop over it that is left early."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import left_generators as module
from pytracer.analyze.evidence.own_code.left_generators import LeftGenerator, left_generator

OF_CLASS = """\
class Loader:
    def __init__(self, lib):
        self.lib = lib

    def __iter__(self):
        handle = self.lib.open_rows()
        for _ in range(9):
            yield self.lib.next_row(handle)
        self.lib.close_rows(handle)

def train(lib, most):
    loader = Loader(lib)
    for step, row in enumerate(loader):
        fit(row)
        if step > most:
            break
"""
OF_FUNCTION = """\
def rows(lib, handle):
    while lib.more(handle):
        yield lib.next_row(handle)
    lib.close_rows(handle)

def first(lib, handle):
    for row in tqdm(rows(lib, handle)):
        for part in row:
            if part.good:
                return part
"""


def found(source: str, monkeypatch: pytest.MonkeyPatch) -> LeftGenerator | None:
    monkeypatch.setattr(module, "place_of", lambda view, file, line: f"line {line}")
    view: Any = SimpleNamespace()
    return left_generator(view, {"/job/train.py": ast.parse(source)}, ["stop", "close_rows"])


def test_break_of_a_loop_over_an_object_is_named_with_the_call_behind_its_yield(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = found(OF_CLASS, monkeypatch)
    assert told is not None
    assert told.summary == (
        "close_rows() (line 9) is behind the `yield` of Loader.__iter__(), which the loop at line 13 never comes back "
        "to where its `break` (line 16) or an exception leaves it"
    )
    assert told.advice.startswith("Put close_rows() (line 9) into a `finally:` around the loop with the `yield`")


def test_return_from_within_a_loop_over_a_generator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(OF_FUNCTION, monkeypatch)
    assert told is not None
    assert (told.generator, told.word, told.left) == ("rows()", "return", "line 10")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            break\n", "            pass\n"),  # to its end
        ("            break\n", "            for part in row:\n                break\n"),  # of an inner loop
        ("enumerate(loader)", "enumerate(other)"),
        ("        self.lib.close_rows(handle)\n", ""),
        ("        handle = self.lib.open_rows()\n", "        self.lib.close_rows(0)\n        handle = 1\n"),  # before
        ("self.lib.close_rows(handle)", "self.lib.log(handle)"),
        ("    for step", "    loader = list(loader)\n    for step"),  # that is read to its end
        ("            break\n", "            break\n    lib.close_rows(loader.handle)\n"),  # another way to close it
    ],
)
def test_loops_to_their_end_and_other_objects_are_none(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(OF_CLASS.replace(old, new), monkeypatch) is None


def test_call_in_a_finally_runs_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    source = OF_CLASS.replace(
        "        for _ in range(9):\n            yield self.lib.next_row(handle)\n"
        "        self.lib.close_rows(handle)\n",
        "        try:\n            yield self.lib.next_row(handle)\n        finally:\n"
        "            self.lib.close_rows(handle)\n",
    )
    assert found(source, monkeypatch) is None


def test_call_where_the_end_of_the_generator_is_caught_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    source = OF_CLASS.replace(
        "        for _ in range(9):\n            yield self.lib.next_row(handle)\n",
        "        try:\n            yield self.lib.next_row(handle)\n        except GeneratorExit:\n            pass\n",
    )
    assert found(source, monkeypatch) is None
    assert found(source.replace("GeneratorExit", "(OSError, StopIteration)"), monkeypatch) is not None


def test_two_loops_that_are_left_leave_open_which_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    more = "\ndef other(lib):\n    for row in Loader(lib):\n        break\n"
    assert found(OF_CLASS + more, monkeypatch) is None
