"""Whether an `except` passes an error over."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.collectives.quiet_handlers import goes_on


def handler_of(caught: str, body: str) -> ast.ExceptHandler:
    node = ast.parse(f"try:\n    step()\nexcept{caught}:\n    {body}\n").body[0]
    assert isinstance(node, ast.Try)
    return node.handlers[0]


@pytest.mark.parametrize(
    ("caught", "body"),
    [
        (" RuntimeError", "print('skipped')"),
        (" RuntimeError as e", "with open('log') as f: f.write(str(e))"),
        ("", "pass"),
        (" (ValueError, OSError)", "count += 1"),
        (" Exception", "if worst > 3: raise"),
        (" KeyboardInterrupt", "print('stopped')"),
    ],
)
def test_handler_that_comes_to_its_end_goes_on(caught: str, body: str) -> None:
    assert goes_on(handler_of(caught, body))


@pytest.mark.parametrize(
    ("caught", "body"),
    [
        (" RuntimeError", "raise"),
        (" RuntimeError", "save(); sys.exit(1)"),
        (" RuntimeError", "os._exit(3)"),
        (" RuntimeError as e", "with lock: raise Failed from e"),
    ],
)
def test_handler_that_raises_or_ends_the_process_does_not(caught: str, body: str) -> None:
    assert not goes_on(handler_of(caught, body))
