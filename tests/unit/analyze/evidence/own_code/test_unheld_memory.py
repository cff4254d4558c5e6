"""Memory whose address a native struct has, and which nothing holds; and what is held after all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.unheld_memory import UnheldMemories, unheld_memory
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

PROGRAM = """from cffi import FFI
import ctypes, torch
class Desc(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)]
class Session:
    def __init__(self, ffi, n):
        self.ffi, self.lib = ffi, ffi.dlopen("libengine.so")
        self.io = self.ffi.new("io_t *")
        self.desc = Desc()
        {}
def main(session):
    session.run()
"""


def found_in(folder: Path, given: str) -> UnheldMemories | None:
    source = PROGRAM.format(given.replace("\n", "\n        "))
    view: Any = view_of(folder, source, len(source.splitlines()))
    view.process.snapshot.storages = ()
    return unheld_memory(view)


@pytest.mark.parametrize(
    ("given", "target", "made"),
    [
        ("self.io.inputs = self.ffi.new('t[]', n)", "self.io.inputs", "self.ffi.new('t[]', n)"),
        ("self.io.rows[0].at = ffi.cast('void *', ffi.new('t[]', n))", "self.io.rows[0].at", "ffi.new('t[]', n)"),
        ("self.names = ffi.new('char *[]', [ffi.new('char[]', w) for w in n])", "self.names", "ffi.new('char[]', w)"),
        ("self.desc.data = torch.zeros(n).data_ptr()", "self.desc.data", "torch.zeros(n)"),
        ("self.desc.data = ctypes.c_void_p(np.zeros(n).ctypes.data)", "self.desc.data", "np.zeros(n)"),
        ("self.desc.data = ctypes.addressof((ctypes.c_int * n)())", "self.desc.data", "(ctypes.c_int * n)()"),
        ("self.desc.data = np.zeros(n).ctypes.data_as(P)", "self.desc.data", "np.zeros(n)"),
        ("d = Desc(torch.zeros(n).data_ptr())\nself.d = d", "Desc(torch.zeros(n).data_ptr())", "torch.zeros(n)"),
    ],
    ids=["cffi", "cast", "initializer", "data_ptr", "ctypes.data", "addressof", "data_as", "constructor"],
)
def test_what_a_line_drops_at_once(given: str, target: str, made: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, given)
    assert found is not None
    assert [(item.target, item.made, item.variable) for item in found.items] == [(target, made, None)]
    assert found.items[0].line == 10 and f"Hold `{made}` (train.py:10)" in found.advice


@pytest.mark.parametrize(
    "given",
    [
        "rows = self.ffi.new('t[]', n)\nrows[0].size = n\nself.io.inputs = rows",
        "x = torch.zeros(n)\nx.fill_(1)\nself.desc.data = x.data_ptr()",
        "rows = ffi.new('t[]', n)\nself.io.inputs = ffi.cast('void *', rows)",
        "text = ctypes.create_string_buffer(n)\nself.desc.data = ctypes.cast(text, ctypes.c_void_p).value",
    ],
    ids=["cffi", "tensor", "cast", "value of a cast"],
)
def test_what_a_variable_alone_held_until_the_function_returned(given: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, given)
    assert found is not None
    assert [(item.variable, item.held_by) for item in found.items] == [(given.split(" ")[0], "__init__")]
    assert "and the memory is freed when __init__() returns" in found.advice


@pytest.mark.parametrize(
    "given",
    [
        "self._in = self.io.inputs = ffi.new('t[]', n)",
        "self.rows = ffi.new('t[]', n)\nself.io.inputs = self.rows",
        "rows = ffi.new('t[]', n)\nself.io.inputs = rows\nself.rows = rows",
        "rows = ffi.new('t[]', n)\nself.io.inputs = rows\nkeep.append(rows)",
        "rows = ffi.new('t[]', n)\nself.io.inputs = rows\nself.free = lambda: rows",
        "rows = ffi.new('t[]', n)\nself.io.inputs = rows\nself.lib.run(self.io)",
        "rows = ffi.new('t[]', n)\nio = ffi.new('io_t *')\nio.inputs = rows\nself.lib.run(io)",
        "self.io.inputs = ffi.from_buffer(n)",
        "self.io.size = len(n)",
        "self.desc.data = n.data_ptr()",
        "self.desc.data = n.contiguous().data_ptr()",
        "data = (ctypes.c_int * n)()\nself.desc.data = ctypes.cast(data, ctypes.c_void_p)",
        "self.desc.data = ctypes.cast((ctypes.c_int * n)(), ctypes.c_void_p)",
        "self.buffers.inputs = ffi.new('t[]', n)",
        "self.table = {}\nself.table['a'] = ffi.new('t[]', n)",
        "x = torch.zeros(n)\ny = x.view(2, 2)\nself.desc.data = x.data_ptr()\nself.y = y",
    ],
    ids=[
        "both at once",
        "attribute",
        "kept later",
        "kept in a list",
        "kept by a function",
        "used before it returns",
        "the struct ends as well",
        "of another object",
        "a number",
        "an argument",
        "may be the tensor itself",
        "ctypes holds what was cast",
        "ctypes holds what it casts",
        "an object of Python",
        "a dict",
        "a view of it is kept",
    ],
)
def test_what_is_held(given: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, given) is None


def test_two_of_one_text_are_said_together(tmp_path: Path) -> None:
    found = found_in(tmp_path, "self.io.a = ffi.new('t[]', n)\nself.io.b = ffi.new('t[]', n)")
    assert found is not None
    assert found.summary == (
        "first suspects are dangling pointers, as nothing holds the memory whose address `self.io.a` and `self.io.b` "
        "keep (train.py:10 and train.py:11)"
    )
    assert found.advice.startswith("Hold `ffi.new('t[]', n)` (train.py:10 and train.py:11) in variables or attributes")


def test_a_function_that_is_running_still_holds_it(tmp_path: Path) -> None:
    """Its variable lives until it returns."""
    source = PROGRAM.format("rows = ffi.new('t[]', n)\n        self.io.inputs = rows\n        train(self)")
    view: Any = view_of(tmp_path, source, 12)
    view.process.snapshot.storages = ()
    assert unheld_memory(view) is None
