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


_LAZY = """
import copy
class Proxy:
    def __getattr__(self, name):
        return getattr(self.inner, name)
class Lazy(Proxy):
    def __init__(self, size):
        self.size = size
def run(proxy):
    copy.deepcopy(proxy)
run(Lazy(3))
"""


def test_object_that_init_left_without_it_is_asked_itself(tmp_path: Path) -> None:
    """No object was made without __init__: deepcopy() asks the one that it is to copy for __deepcopy__."""
    words = of_program(tmp_path, _LAZY) or ""
    assert "without __init__" not in (of_program(tmp_path, _LAZY, _subject) or "")
    assert "without __init__" not in words or "copy and pickle make" in words


def test_subclass_may_be_what_was_made(tmp_path: Path) -> None:
    source = f"{_PROXY}    copy.copy(proxy)\nclass Other(Proxy):\n    pass\nrun(Other(3))\n"
    assert "makes an object of Proxy or a subclass without __init__" in (of_program(tmp_path, source, _subject) or "")
