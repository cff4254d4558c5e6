"""Regular expressions that are compiled late."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import pytracer.analyze
from pytracer._patterns import Pattern


def test_every_pattern_of_the_rules_can_be_compiled() -> None:
    """What import would have found before."""
    for module in pkgutil.walk_packages(pytracer.analyze.__path__, "pytracer.analyze."):
        importlib.import_module(module.name)
    gc.unfreeze()  # conftest.py has frozen what was imported when the tests were collected
    found = [item for item in gc.get_objects() if type(item) is Pattern]  # isinstance() asks lazy modules of torch
    assert len(found) > 500
    assert all(isinstance(item.compiled, re.Pattern) for item in found)


def test_importing_the_rules_compiles_none() -> None:
    program = (
        "import gc, pytracer.analyze.engine\n"
        "from pytracer._patterns import Pattern\n"
        "print([i.pattern for i in gc.get_objects() if isinstance(i, Pattern) and 'compiled' in vars(i)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_pattern_does_what_re_does() -> None:
    late, text = Pattern(r"(\w)(\d+)", re.IGNORECASE), "a1, B22; c333"
    made = re.compile(r"(\w)(\d+)", re.IGNORECASE)
    for name in ("search", "match", "fullmatch"):
        one, other = getattr(late, name)(text), getattr(made, name)(text)
        assert (one and one.span()) == (other and other.span())
    assert late.findall(text, 2, 8) == made.findall(text, 2, 8)
    assert [item.span() for item in late.finditer(text, 2)] == [item.span() for item in made.finditer(text, 2)]
    assert late.sub(r"\2\1", text, 1) == made.sub(r"\2\1", text, 1)
    assert late.split(text, 1) == made.split(text, 1)


def test_pattern_that_cannot_be_compiled_is_refused_where_it_is_used() -> None:
    with pytest.raises(re.error):
        Pattern("(").search("text")
