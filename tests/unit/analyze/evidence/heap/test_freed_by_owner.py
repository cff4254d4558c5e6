"""Blocks that an object of the program and another line free: by the source, and the near cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, PROGRAM, advice, died, image, summary

LIBRARY = "/home/me/libstore.so"
FREE = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (LIBC_SO, "__libc_free")]
STACK = [*FREE, (LIBRARY, "buffer_free"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
SOURCE = """class Buffer:
    def __init__(self, lib, address):
        self.lib, self.address = lib, address

    def __del__(self):
        self.lib.buffer_free(self.address)


class Store:
    def get(self, key):
        {made}
        try:
            return view(held).reshape(self.shape)
        except ValueError:
            {freed}
            return None


def main():
    store.get(1)
"""
MADE = "address = lib.export(key); held = Buffer(lib, address)"


def report_of(
    run: Path, made: str = MADE, freed: str = "lib.buffer_free(address)", text: str = "(!prev)", method: str = ""
) -> Report:
    """Of a death in `__del__`, below get()."""
    file = run / "train.py"
    source = SOURCE.format(made=made, freed=freed)
    file.write_text(source.replace("self.lib.buffer_free", method) if method else source, encoding="utf-8")
    os.utime(file, (0, 0))
    python = [("Buffer.__del__", str(file), 6), ("Store.get", str(file), 16), ("main", str(file), 20)]
    return died(
        run, signal=6, code=-6, sender_pid=101, abort_text=f"double free or corruption {text}\n", mappings=[PROGRAM],
        stack_of=STACK, python=python, images=(image(LIBRARY),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "freed", "what"),
    [
        (MADE, "lib.buffer_free(address)", "address"),
        ("held = Buffer(lib, lib.export(key))", "lib.buffer_free(held.address)", "held.address"),
        (
            "address = lib.export(key); held.owner = Buffer(address=address, lib=lib)",
            "free_it(lib); buffer_free(address)",
            "address",
        ),
    ],
)
def test_line_that_frees_what_an_object_owns_is_named(made: str, freed: str, what: str, run: Path) -> None:
    """With the object that frees it again when it is collected."""
    report = report_of(run, made, freed)
    assert "aborted because free() refused a block" in summary(report)
    assert f"most likely it was freed twice, as line 15 (`buffer_free({what})` in Store.get()) frees" in summary(report)
    assert "Let one owner alone free it: Buffer does by buffer_free() at line 6" in advice(report)
    assert "export" not in advice(report)


@pytest.mark.parametrize(
    ("made", "freed", "text"),
    [
        (MADE, "log(address)", "(!prev)"),
        (MADE, "lib.buffer_free(other)", "(!prev)"),
        (MADE, "lib.buffer_free(address); held.address = None", "(!prev)"),
        ("address = lib.export(key); held = Other(lib, address)", "lib.buffer_free(address)", "(!prev)"),
    ],
)
def test_nothing_is_said_where_no_other_line_frees_it(made: str, freed: str, text: str, run: Path) -> None:
    """Another block, an object that lets its own go, or no object; nor is a call that is given memory a suspect."""
    report = report_of(run, made, freed, text)
    assert "most likely it was freed twice" not in summary(report)
    assert "first suspect" not in summary(report) + advice(report)
    assert advice(report).startswith("Look first at buffer_free, which frees it")
