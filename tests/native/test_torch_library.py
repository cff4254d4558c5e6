"""libpytracer_torch: one build for every CPython, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pytracer import _paths as paths
from pytracer._errors import RecordingError
from pytracer._torch_libraries import Torch
from pytracer.record.torch import library
from tests.conditions import needs_native
from tests.support.cli import clean_environment

pytestmark = needs_native

# The limited API of CPython 3.10, and what every CPython from 3.10 on has in addition. torch's headers bring more,
# which --gc-sections removes.
STABLE = {
    *("PyBytes_Type", "PyCapsule_GetPointer", "PyCapsule_New", "PyErr_Clear", "PyErr_Occurred", "PyErr_SetString"),
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyExc_RuntimeError", "PyExc_TypeError"),
    *("PyGILState_GetThisThreadState", "PyList_Append", "PyList_GetItem", "PyList_New", "PyList_Size"),
    *("PyLong_AsLongLong", "PyObject_CallFunctionObjArgs", "PyObject_CallMethod", "PyObject_CallObject"),
    *("PyThreadState_GetID", "PyThreadState_GetInterpreter", "PyType_FromSpec", "PyType_IsSubtype"),
    *("PyUnicode_AsUTF8AndSize", "PyUnicode_Type", "Py_AtExit", "Py_BuildValue", "_Py_Dealloc", "_Py_NoneStruct"),
}
UNCHANGED = {"PyCode_Type", "PyGILState_Check", "PyInterpreterState_Main"}


def built() -> Path:
    """The library for the torch that this tree was built for."""
    return paths.torch_library(paths.built_torches()[0])


def test_nothing_of_it_belongs_to_one_cpython() -> None:
    """Of Python it needs functions and types that no version has changed."""
    with built().open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        needed = {item.name for item in table.iter_symbols() if item["st_shndx"] == "SHN_UNDEF"}
    of_python = {name for name in needed if name.startswith(("Py", "_Py"))}
    assert of_python <= STABLE | UNCHANGED
    assert "PyCode_Type" in of_python  # the section was read


# In a process of its own, as the hooks are loaded: after torch, whose libraries they need, beside the core.
LOAD = """
import sys, torch
from pathlib import Path
from pytracer._errors import RecordingError
from pytracer._torch_libraries import Libraries, Torch
from pytracer.record.torch import library

library.libraries = lambda torch: Libraries(Path(sys.argv[1]).parent, torch.released_minor)
try:
    library.load(Torch(sys.argv[2], ""))
except RecordingError as error:
    print(error.args[0])
    print(error.hint)
else:
    print("loaded")
"""


def loads(path: Path, torch_version: str) -> str:
    """What loading the library at `path` for a torch says."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, path, torch_version],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the library in a package that has the core."""
    shutil.copy(paths.built_core(), tmp_path)
    target = tmp_path / "_torch" / "x" / built().name
    target.parent.mkdir(parents=True)
    return Path(shutil.copy(built(), target))


@pytest.mark.parametrize("damage", ["truncated", "cut in its code", "empty", "no library"])
def test_damaged_library_is_refused_with_the_reason(damage: str, copy: Path) -> None:
    """One error that names the file, and the next step; the same file undamaged loads."""
    version = f"{paths.built_torches()[0]}.0+cpu"
    content = copy.read_bytes()
    damaged = {
        "truncated": content[:-1],
        "cut in its code": content[:65536],
        "empty": b"",
        "no library": b"#!/bin/sh\n",
    }
    copy.write_bytes(damaged[damage])
    answer = loads(copy, version)
    assert answer.startswith(f"{copy} does not load: ")
    assert answer.endswith(f"{paths.install_again()}\n")


def test_version_in_the_library_decides_which_torch_it_is_for(copy: Path) -> None:
    """Put where the one for another torch belongs, it is refused; for its own torch it loads."""
    minor = paths.built_torches()[0]
    assert loads(copy, f"{minor}.0") == "loaded\n"
    assert loads(copy, "1.0.0") == f"{copy} was built for torch {minor}\n{paths.install_again()}\n"


def test_torch_without_a_library_is_named_with_those_that_have_one() -> None:
    """The message has both versions."""
    with pytest.raises(RecordingError, match=rf"hooks for torch {paths.built_torches()[0]}, this is torch 1\.0\.0"):
        library.load(Torch("1.0.0", ""))
