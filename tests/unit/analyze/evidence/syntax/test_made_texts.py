"""The text that an expression makes of recorded numbers."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.made_texts import made_text

VALUES = {"index": "7", "self.size": "64", "share": "0.5", "rows": "list of 4"}


def text(source: str) -> str | None:
    return made_text(ast.parse(source, mode="eval").body, lambda node: VALUES.get(ast.unparse(node)))


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("'hr_{}_{}'.format(self.size, str(index).zfill(5))", "hr_64_00007"),
        ("f'{self.size}/{index:06d}.png'", "64/000007.png"),
        ("f'{index:3}'", "  7"),
        ("'%05d.npy' % index", "00007.npy"),
        ("'%s-%d' % (index, self.size)", "7-64"),
        ("'clip' + str(index + 1)", "clip8"),
        ("f'row{index}'.encode()", "row7"),
        ("'{0}_{1:03d}'.format(self.size, index)", "64_007"),
    ],
)
def test_numbers_are_spelled_as_the_program_does(source: str, made: str) -> None:
    assert text(source) == made


@pytest.mark.parametrize(
    "source",
    [
        "f'{name}.png'",
        "f'{share:.2f}'",
        "f'{index:x}'",
        "f'{index!r}'",
        "'{1}{0}'.format(index, index)",
        "'{} {}'.format(index)",
        "'{:999999999}'.format(index)",
        "'%f' % index",
        "str(rows)",
        "str(index).zfill(10**9)",
        "names[index]",
    ],
)
def test_what_is_not_known_or_spelled_otherwise_is_no_text(source: str) -> None:
    assert text(source) is None
