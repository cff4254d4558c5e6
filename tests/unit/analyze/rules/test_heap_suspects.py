"""Whom the advice about a damaged heap suspects: what the program brought and called, and nothing without support."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, advice, died, image, verdict

ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101}
SIZES = "double free or corruption (!prev)\n"
TOP = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (LIBC_SO, "__libc_free")]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
NUMPY = "/venv/lib/python3.11/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
ARRAY = [*TOP, (NUMPY, "array_dealloc"), PYTHON]
TENSOR = [*TOP, (s.TORCH_CPU, "at::native::add(at::Tensor const&, at::Tensor const&)"), PYTHON]
BY_CTYPES = [*TOP, ("/usr/lib/libffi.so.8", "ffi_call"), PYTHON]
OWN = "/home/user/job/libecho.so"
PREFIX = "/home/user/.pyenv/versions/3.11.7"
OTHERS = [
    LIBC_SO, NUMPY, s.TORCH_CPU, f"{PREFIX}/bin/python3.11", f"{PREFIX}/lib/libpython3.11.so.1.0",
    f"{PREFIX}/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", f"{PREFIX}/lib/libexpat.so.1",
    "/usr/lib/libjemalloc.so.2", "/tmp/torchinductor_user/ab/cab.main.so", "/home/user/.triton/cache/ab/launcher.so",
    "/usr/local/cuda-12.4/lib64/libcudart.so.12", "/venv/lib/python3.11/site-packages/pandas/_libs/lib.so",
    "/home/user/pytracer/libpytracer_core.so", "linux-vdso.so.1", "/opt/vendor/lib/libfabric.so.1",
]  # fmt: skip
CALLS = """import ctypes
import numpy as np

def augment(library, room):
    library.echo(ctypes.byref(room), 3)
    return np.ascontiguousarray(room)
"""
SUSPECT = "libecho.so, which line 5 (`library.echo(ctypes.byref(room), 3)`) calls"


def advised(
    run: Path, *paths: str, stack: Any = TENSOR, source: str | None = CALLS, text: str = SIZES, **how: Any
) -> str:
    file = run / "augment.py"
    if source is not None:
        file.write_text(source, encoding="utf-8")
        os.utime(file, (0, 0))  # before the recorded process began
    images = tuple(image(path, number) for number, path in enumerate((*OTHERS, *paths)))
    how = {**ABORT, "abort_text": text, "images": images, "python": [("augment", str(file), 6)], **how}
    report = died(run, stack_of=stack, **how)
    assert verdict(report) == ("heap-corruption", "certain")
    return advice(report)


def test_memory_of_numpy_suspects_the_library_that_the_program_calls(run: Path) -> None:
    """Not NumPy, which only came to free it, nor what damages torch's memory."""
    for text in (SIZES, "free(): invalid pointer\n"):
        said = advised(run, OWN, stack=ARRAY, text=text)
        assert said.startswith(f"Look first at {SUSPECT}: native code must not free(), realloc() or write past the end")
        assert "check_invariants" not in said and "extensions" not in said


def test_memory_of_torch_suspects_it_as_well_and_keeps_guard_mode(run: Path) -> None:
    said = advised(run, OWN)
    assert "`pytracer run --guard`" in said
    assert said.endswith(f"First suspect is {SUSPECT}: check the sizes and addresses that are passed.")


@pytest.mark.parametrize("stack", [ARRAY, TENSOR])
def test_libraries_of_others_are_no_suspects(stack: Any, run: Path) -> None:
    """Of the system, of Python, of packages, of vendors, and what torch compiled."""
    said = advised(run, stack=stack)
    assert "libecho" not in said and "Look first at" not in said
    assert said.endswith(
        "First suspects are sizes and indices that native code does not check, and extensions built for another torch."
    )


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch\n\nx = torch.sparse_coo_tensor(i, v)\n", "First suspects are indices that are not checked (sp"),
        ("import torch\n\nx = y.to_sparse_csr()\n", "First suspects are indices that are not checked (sparse tensors"),
        (None, "First suspects are indices that are not checked (sparse tensors"),
        ("import torch\n\nx = torch.embedding_bag(w, i)\n", "First suspects are sizes and indices that native code"),
    ],
    ids=["sparse", "csr", "unknown source", "not sparse"],
)
def test_sparse_tensors_are_suspects_where_the_program_may_use_them(source: str | None, says: str, run: Path) -> None:
    assert says in advised(run, source=source, python=[("augment", str(run / "augment.py"), 3)])


def test_a_sparse_program_with_a_library_has_both_suspects(run: Path) -> None:
    said = advised(run, OWN, source=CALLS.replace("np.ascontiguousarray(room)", "room.to_sparse()"))
    assert said.endswith(
        f"First suspects are indices that are not checked (sparse tensors: check_invariants=True) and {SUSPECT}."
    )


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import ctypes\nlib = ctypes.CDLL(p)\n\nlib.f(x.data_ptr(), 3)\n\n\n", ["line 4 (`lib.f(x.data_ptr(), 3)`)"]),
        (
            "import ctypes\nlib = ctypes.CDLL(p)\n\nlib.f(x.ctypes.data, 3)\n\n\n",
            ["line 4 (`lib.f(x.ctypes.data, 3)`)"],
        ),
        ("import libecho as e\n\n\ne.f(x)\n\n\n", ["line 4 (`e.f(x)`)"]),
        ("from job import libecho\n\n\nlibecho.f(x)\nlibecho.g(x)\n\n", ["line 4 (`libecho.f(x)`)", "line 5 (`libech"]),
        ("import ctypes\n\n\ntorch.f(x.data_ptr())\nctypes.memmove(x.data_ptr(), y, 3)\n\n", []),
        ("import other\n\n\nother.f(x.data_ptr())\n\n\n", []),
        ("import libecho\n\nlibecho.f()\nlibecho.f()\nlibecho.f()\nlibecho.f()\n", []),
    ],
    ids=["data_ptr", "ctypes.data", "extension", "two lines", "not of a library", "without ctypes", "too many lines"],
)
def test_lines_that_call_the_library_are_named(source: str, lines: list[str], run: Path) -> None:
    """One or two of them; the look-alikes pass addresses to torch or ctypes themselves."""
    said = advised(run, OWN, source=source)
    assert "libecho.so" in said
    assert all(line in said for line in lines)
    assert ("which line" in said) == bool(lines)


def test_free_that_ctypes_called_is_the_lines_own(run: Path) -> None:
    """libffi is no function to look at; a function of the program's own library is."""
    text = "free(): invalid pointer\n"
    assert advised(run, stack=BY_CTYPES, text=text).startswith("Look first at line 6, which frees it")
    own = [*TOP, (OWN, "release"), *BY_CTYPES[-2:]]
    assert advised(run, OWN, stack=own, text=text).startswith("Look first at release, which frees it")
