"""What modules have warned of before an exception."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytracer.record.torch.earlier_warnings import earlier_warnings

SOURCE = """import warnings

def spread(values):
    warnings.warn("std(): degrees of freedom is <= 0", RuntimeWarning)
    warnings.warn("old", DeprecationWarning)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of the user's, with the filters that a program begins with."""
    module, file = ModuleType("statistics_of_user"), tmp_path / "spread.py"
    module.__file__ = str(file)
    exec(compile(SOURCE, str(file), "exec"), vars(module))  # noqa: S102
    sys.modules[module.__name__] = module
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield module
    del sys.modules[module.__name__]


def told(module: ModuleType) -> list[dict[str, object]]:
    return [item for item in earlier_warnings() if item["file"] == module.__file__]


def test_warning_of_a_program_is_recorded_with_its_line_and_those_of_versions_are_not(program: ModuleType) -> None:
    with pytest.warns():  # keeps them from the output, and the registry as it is
        program.spread([])
    vars(program)["__warningregistry__"] = {}
    warnings.showwarning, shown = (lambda *_, **__: None), warnings.showwarning
    try:
        program.spread([])
        program.spread([])
    finally:
        warnings.showwarning = shown
    text = "std(): degrees of freedom is <= 0"
    assert told(program) == [{"category": "RuntimeWarning", "message": text, "file": program.__file__, "line": 4}]


def test_module_that_has_not_warned_and_a_damaged_registry_have_none(program: ModuleType) -> None:
    assert told(program) == []
    damaged: object = {3: True, ("text",): True, ("text", int, 4): True, ("text", UserWarning, "4"): True}
    for registry in (list[object](), damaged):
        vars(program)["__warningregistry__"] = registry
        assert told(program) == []


def test_long_registry_is_cut(program: ModuleType) -> None:
    vars(program)["__warningregistry__"] = {("w" * 1000, UserWarning, line): True for line in range(1, 200)}
    found = told(program)
    assert len(found) == 6 and all(len(str(item["message"])) == 300 for item in found)
