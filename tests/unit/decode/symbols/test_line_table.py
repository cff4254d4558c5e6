"""Line tables against the interpreter's own answers, and the 3.10 format against hand-made tables."""

from __future__ import annotations

import dis
import sys
from types import CodeType

import pytest

from pytracer.decode.symbols.line_table import line_of
from tests.support import synth

SOURCE = """
def f(a,
      b=1):
    total = (a +
             b)

    for i in range(3):
        try:
            total += [x
                      for x in (i,
                                a)][0]
        except ValueError: pass
        finally:
            total = total * 2
    with open("x") as g: return g, total
%s
    return lambda: (
        total
    )
""" % ("\n" * 300 + "    total -= 1" + "\n" * 200)


def _codes(code: CodeType) -> list[CodeType]:
    return [code, *(c for k in code.co_consts if isinstance(k, CodeType) for c in _codes(k))]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="co_positions() and this format came with 3.11")
@pytest.mark.parametrize("code", _codes(compile(SOURCE, "s.py", "exec")), ids=lambda c: c.co_name)
def test_every_instruction_has_the_line_that_the_interpreter_gives(code: CodeType) -> None:
    """All offsets of all code objects of a source with jumps back, long gaps and no-line instructions."""
    positions = code.co_positions  # type: ignore[attr-defined]  # of Python 3.11
    lines = [p[0] for p in positions()]
    for offset in range(0, len(code.co_code), 2):
        mine = line_of(code.co_linetable, sys.version_info[1], code.co_firstlineno, offset)
        assert mine == lines[offset // 2], (offset, dis.Bytecode(code).dis())


def test_310_table_moves_lines_forth_and_back() -> None:
    """Pairs of (bytes, line delta); -128 means no line and does not move."""
    table = bytes([0, 1, 4, 0, 2, 256 - 3, 2, 128, 4, 5])
    assert [line_of(table, 10, 10, o) for o in (0, 2, 4, 6, 8, 10)] == [11, 11, 8, None, 13, 13]


def test_frame_that_has_not_started_stands_on_its_first_line() -> None:
    """The offset of such a frame is negative."""
    assert line_of(synth.line_table_311([5]), 11, 7, -2) == 7


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_table_cut_anywhere_gives_a_line_or_nothing(minor: int) -> None:
    """No table makes the reader fail."""
    table = synth.line_table_311([0, 300, -200, 1])
    for end in range(len(table) + 1):
        assert line_of(table[:end], minor, 1, 50) in (*range(-2000, 2000), None)


def test_offset_behind_the_table_has_no_line() -> None:
    """Nothing is invented."""
    assert line_of(synth.line_table_311([0]), 11, 1, 4000) is None
    assert line_of(b"", 11, 1, 0) is None
