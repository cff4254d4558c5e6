"""What keeps a line from being reached."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.leaving import obstacles

SOURCE = """\
def fill(source):
    for item in source:
        try:
            check(item)
        except ValueError:
            continue
        except KeyError:
            log(item)
        done()
    try:
        check(source)
    except OSError:
        return
    finally:
        closed()
    if not batches:
        return
    if batches:
        ready()
    else:
        late()
"""


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        (9, ["except ValueError"]),  # the other handler goes on
        (4, []),  # within the `try`
        (19, ["batches", "if not batches"]),  # what has a `finally` is left out
        (21, ["if not batches"]),  # of an `else` nothing is said
    ],
)
def test_branches_and_handlers_that_leave(line: int, texts: list[str]) -> None:
    assert [item.text for item in obstacles(ast.parse(SOURCE), line)] == texts


def test_words_tell_both_apart() -> None:
    words = [item.words for item in obstacles(ast.parse(SOURCE), 19)]
    assert words == [
        "reached only where `batches` (line 18)",
        "not reached after `if not batches` (line 16, which leaves)",
    ]


CAUGHT = """\
def work(results):
    for path in paths:
        if path is None:
            break
        try:
            results.put({0})
        except ValueError:
            {1}
"""


@pytest.mark.parametrize(
    ("value", "handler", "caught"),
    [("load(path)", "print(path)", True), ("path", "print(path)", False), ("load(path)", "raise", False)],
)
def test_error_that_is_caught_around_the_line(value: str, handler: str, caught: bool) -> None:
    """Where something can fail before it; a handler that raises again leaves nothing out in silence."""
    found = [item for item in obstacles(ast.parse(CAUGHT.format(value, handler)), 6) if item.caught]
    assert bool(found) == caught
    for item in found:
        assert item.words == "left out where `except ValueError` (line 7) catches an error before"
