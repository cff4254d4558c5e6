"""__getattr__ of an object that was made without __init__: which call made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.record.torch.exceptions import FRAMES, OUTERMOST
from tests.unit.analyze.evidence.test_failing import of_program

_PROXY = """
import copy
import pickle
class Proxy:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        return getattr(self.inner, name)
def run(proxy):
"""


def _subject(snapshot: Any, report: Any, stack: list[Any]) -> str | None:
    """As the recorder writes a deep stack."""
    report = structs.replace(report, outermost=stack[FRAMES:][-OUTERMOST:], frame_count=len(stack))
    return explained(snapshot, report, stack[:FRAMES]).subject


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("copy.copy(proxy)", "copy.copy(proxy) at line 10 makes a Proxy without __init__"),
        ("held = copy.deepcopy([proxy])", "copy.deepcopy([proxy]) at line 10 makes a Proxy without __init__"),
        ("Proxy.__new__(Proxy).rate", "__getattr__() asks for `self.inner`"),
    ],
)
def test_call_that_made_it_is_named_where_a_copy_did(line: str, words: str, tmp_path: Path) -> None:
    """Not where the program itself made one without __init__."""
    assert (of_program(tmp_path, f"{_PROXY}    {line}\nrun(Proxy(3))\n", _subject) or "").startswith(words)
