"""Another line that may free what the failing one frees: another method, a second owner, or a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.heap.second_free import second_free
from tests.support.native_views import native_view

SOURCE = "void buf_free(void *p)\n{\n    free(p);\n}\n"
PROGRAM = """\
import copy
import ctypes
lib = ctypes.CDLL("libops.so")
class Buffer:
    def __init__(self, address):
        self.address = address or lib.buf_new(8)
    def again(self):
        return MAKES
    def __del__(self):
        lib.buf_free(self.address)
class Other:
    def __init__(self):
        self.address = lib.buf_new(4)
    def close(self):
        lib.buf_free(self.address)
def view_of(address):
    try:
        return wrap(Buffer(address))
    except ValueError:
        HAND
"""
DEL = "    def __del__(self):\n        lib.buf_free(self.address)\n"
AGAIN = f"    def again(self):\n        return None\n{DEL}"


def found(folder: Path, makes: str = "None", hand: str = "return None", *, old: str = "", new: str = "") -> Any:
    program = PROGRAM.replace("MAKES", makes).replace("HAND", hand).replace(old, new)
    return second_free(native_view(folder, program, SOURCE, at="lib.buf_free", way=[("buf_free", "free(p)")]))


def test_a_method_that_frees_what_del_frees_again_is_named(tmp_path: Path) -> None:
    told = found(tmp_path, old=AGAIN, new=f"{DEL}    def again(self):\n        lib.buf_free(self.address)\n")
    assert told.summary == "line 10 (in again()) calls buf_free(), too"
    assert "leave freeing it to one of the two" in told.advice and "as line 8" in told.advice


def test_nothing_is_said_of_a_method_that_sets_its_attribute_anew(tmp_path: Path) -> None:
    frees = "    def again(self):\n        lib.buf_free(self.address)\n        self.address = None\n"
    assert found(tmp_path, old=AGAIN, new=DEL + frees) is None


def test_a_second_object_of_the_same_address_is_named(tmp_path: Path) -> None:
    told = found(tmp_path, "Buffer(self.address)")
    assert told.summary == "line 8 (`Buffer(self.address)`) gives its `self.address` to a second Buffer"
    assert told.advice.startswith("Let only one object own `self.address`: line 8")


def test_a_copy_of_an_owner_is_named_as_what_may_be(tmp_path: Path) -> None:
    told = found(tmp_path, "copy.copy(self)")
    assert told.summary == "line 8 (`copy.copy(self)`) may copy a Buffer, which frees `self.address`"
    assert "a __copy__ and __deepcopy__" in told.advice


@pytest.mark.parametrize(
    ("makes", "old", "new"),
    [
        ("None", "", ""),  # Other.close() frees its own
        ("lib.buf_free(self.address)", "", ""),  # it fails there, and __del__() comes last
        ("Buffer(0)", "", ""),
        ("x.copy()", "", ""),  # of an array
        ("copy.copy(self)", "    def again", "    def __copy__(self):\n        return Buffer(0)\n    def again"),
        ("Buffer(self.address)", "        lib.buf_free(self.address)\nclass",
         "        if self.owns:\n            lib.buf_free(self.address)\nclass"),
    ],
)  # fmt: skip
def test_nothing_is_said_where_each_is_freed_once(makes: str, old: str, new: str, tmp_path: Path) -> None:
    assert found(tmp_path, makes, old=old, new=new) is None
