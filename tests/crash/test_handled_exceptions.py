"""The exception that the program was handling when it died: the reason why it was there and not elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytracer.decode.types.journal import HandledException
from tests.conditions import needs_core, python_or_skip
from tests.support.crash import ended, preloaded

pytestmark = needs_core

PROGRAM = """\
import os, signal, threading
def look_up(key):
    return {{}}[key]
def step():
    look_up("no \u20ac")
def die():
    os.kill(os.getpid(), signal.SIGSEGV)
    threading.Event().wait()
{call}
"""
IN_EXCEPT = "try:\n    step()\nexcept KeyError:\n    die()"
IN_FINALLY = "try:\n    step()\nfinally:\n    die()"
IN_EXIT = "class Pool:\n    def __enter__(self): pass\n    def __exit__(self, *e): die()\nwith Pool():\n    step()"
BY_THREAD = "try:\n    step()\nexcept KeyError:\n    t = threading.Thread(target=die); t.start(); t.join()"
AFTER = "try:\n    step()\nexcept KeyError:\n    pass\ndie()"
IN_GENERATOR = "def rows():\n    try: step()\n    except KeyError: yield 1\nkept = rows(); next(kept); die()"


def handled(tmp_path: Path, call: str, minor: str = "own") -> HandledException | None:
    """What was recorded of a program that ends by SIGSEGV."""
    python = sys.executable if minor == "own" else python_or_skip(minor)
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(call=call))
    done = ended([python, path], preloaded(tmp_path / "run"), tmp_path / "run")
    (crash,) = [box.crash for box in done.boxes]
    assert crash is not None and crash.steps_faulted == ()
    return crash.handled


@pytest.mark.parametrize("minor", ["own", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_exception_is_recorded_from_where_it_was_raised_to_where_it_was_caught(minor: str, tmp_path: Path) -> None:
    """Type, message and lines, in each CPython."""
    found = handled(tmp_path, IN_EXCEPT, minor)
    assert found is not None
    assert (found.type, found.message) == ("KeyError", "no \u20ac")
    assert [(frame.function, frame.line) for frame in found.python_stack] == [
        ("look_up", 3),
        ("step", 5),
        ("<module>", 10),
    ]


@pytest.mark.parametrize("call", [IN_FINALLY, IN_EXIT, BY_THREAD], ids=["finally", "with", "main thread waits"])
def test_exception_that_passes_through_is_being_handled(call: str, tmp_path: Path) -> None:
    """`finally` and __exit__() run before it goes on; a thread that dies meanwhile has none of its own."""
    found = handled(tmp_path, call)
    assert found is not None and found.type == "KeyError"


@pytest.mark.parametrize("call", ["die()", AFTER, IN_GENERATOR], ids=["none", "after it", "of a generator"])
def test_what_is_over_is_not_being_handled(call: str, tmp_path: Path) -> None:
    """The look-alikes: no exception, one that was dealt with, and one of a generator that does not run."""
    assert handled(tmp_path, call) is None
