"""A damaged heap, and an allocation that is too small in the source that the program compiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.deaths import died, image, summary
from tests.unit.analyze.rules.test_heap_suspects import ABORT, OWN, SIZES, TENSOR, advised

PROGRAM = '''import ctypes
SOURCE = """
void echo(float *room, int n) {
    float *copy = malloc(n);
    for (int i = 0; i < n; i++) copy[i] = room[i];
}
"""
def augment(library, room):
    library.echo(ctypes.c_void_p(room.data_ptr()), 3)
    return room + 1
'''


def test_line_of_the_string_that_is_compiled_is_named(run: Path) -> None:
    said = advised(run, OWN, source=PROGRAM, python=[("augment", str(run / "augment.py"), 10)])
    assert said.startswith(
        "First suspect is line 4 (`float *copy = malloc(n);`) in the source of echo() of libecho.so, which line 9 "
        "calls: it makes room for `n` bytes, not for `n` elements of float, but line 5 goes through `n` elements, and "
        "so writes over what lies behind it. Write `malloc(n * sizeof(float))`. To see that write, run with "
    )


def test_headline_names_it_with_the_call(run: Path) -> None:
    file = run / "augment.py"
    file.write_text(PROGRAM, encoding="utf-8")
    os.utime(file, (0, 0))
    how = {**ABORT, "abort_text": SIZES, "images": (image(OWN, 0),), "python": [("augment", str(file), 10)]}
    assert (
        "; the first suspect is echo() of libecho.so (line 9), whose line 4 (`float *copy = malloc(n);`) "
        in summary(died(run, stack_of=TENSOR, **how))
    )


@pytest.mark.parametrize(
    "change",
    [
        ("void echo(", "void other("),  # of another library
        ("malloc(n)", "malloc(n * sizeof(float))"),
    ],
)
def test_source_without_such_an_allocation_is_no_suspect(change: tuple[str, str], run: Path) -> None:
    """The look-alikes: the call alone is."""
    said = advised(run, OWN, source=PROGRAM.replace(*change), python=[("augment", str(run / "augment.py"), 10)])
    assert said.startswith("First suspect is echo() of libecho.so, to which line 9 passes `room`: an index or count")


def test_source_beside_a_library_that_was_loaded_by_a_relative_path(run: Path) -> None:
    source, library = run / "echo.c", run / "libecho.so"
    source.write_text(PROGRAM.split('"""')[1], encoding="utf-8")
    library.write_bytes(b"")
    os.utime(source, (0, 0))
    program = PROGRAM.partition("SOURCE")[0] + PROGRAM.rpartition('"""\n')[2]
    said = advised(run, "./libecho.so", source=program, python=[("augment", str(run / "augment.py"), 4)])
    assert said.startswith(
        "First suspect is echo.c:3 (`float *copy = malloc(n);`) in the source of echo() of libecho.so"
    )
