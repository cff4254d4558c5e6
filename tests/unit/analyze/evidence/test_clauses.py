"""What of an explanation is its headline."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.failing.clauses import first_clause


@pytest.mark.parametrize(
    ("words", "clause"),
    [
        (
            "`fc` (line 6: `fc = f(a: b)`) takes 4, and `x` is [4, 2] (line 3: `x`). Make",
            "`fc` takes 4, and `x` is [4, 2]",
        ),
        ("The environment has no RANK: start it", "the environment has no RANK"),
        ("`d` has the keys 'a: b', 'c', and no 'e': add it", "`d` has the keys 'a: b', 'c', and no 'e'"),
        (
            "The program's own check at line 2, `a; b`, refuses it: look",
            "the program's own check at line 2, `a; b`, refuses it",
        ),
        ("`y` (returned by Data.__getitem__, line 9) is None in sample 3: f() returns", "`y` is None in sample 3"),
        ("AdamW.__init__() has no 'x', but 'y'. Use that", "AdamW.__init__() has no 'x', but 'y'"),
        ("Look at line 4: it fails", None),
        (f"`{'x' * 140}` is None: check", None),
        ("`s` is a Plan (made at line 3: it takes a value. Pass it", None),
        (f"`a` holds {'x' * 90}, so that `b` has no graph and cannot {'y' * 30}. Do", f"`a` holds {'x' * 90}"),
        ("no end", None),
    ],
)
def test_headline_has_the_statement_without_its_lines(words: str, clause: str | None) -> None:
    """Up to the first colon, semicolon or full stop outside of quotes; not an instruction, nor half a bracket."""
    assert first_clause(words) == clause
