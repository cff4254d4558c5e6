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
        (
            "`conv` takes 3, and `x` is [8, 9, 9, 3]: the channels are last. Pass",
            "`conv` takes 3, and `x` is [8, 9, 9, 3]: the channels are last",
        ),
        (
            "`b` is None (line 3: `b = f()`): `f()` works in place and returns None. Write",
            "`b` is None: `f()` works in place and returns None",
        ),
        ("`y` is [4] and `x` [8]: make both alike. Or", "`y` is [4] and `x` [8]"),
        ("`y` is [4] and `x` [8]: the layer needs 8 outputs. Or", "`y` is [4] and `x` [8]"),
        (
            "`h` was made for 4, and `x` has 3: the last batch is often smaller. Make",
            "`h` was made for 4, and `x` has 3",
        ),
        (
            f"`a` is 0: only b() raises it, and c() did not run, as `{'x' * 140}` skipped it. Do",
            "`a` is 0: only b() raises it, and c() did not run",
        ),
        (f"`a` is {'x' * 90}: it was made by {'y' * 40}. Do", f"`a` is {'x' * 90}"),
    ],
)
def test_headline_has_the_statement_without_its_lines(words: str, clause: str | None) -> None:
    """Up to the first colon, semicolon or full stop outside of quotes; not an instruction, nor half a bracket. Behind a
    colon a statement is the reason, where it is no general remark.
    """
    assert first_clause(words) == clause
