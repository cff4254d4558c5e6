"""A pointer in a structure of C that the array before it was written over, by the numbers that it holds."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.overrun_fields import overrun_field
from pytracer.analyze.evidence.own_code.struct_arrays import struct_array
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
typedef struct { int width; int count; TYPE peaks[64]; float scale; float *trace; } spectrum_t;
spectrum_t *make(void) { return calloc(1, sizeof(spectrum_t)); }
void scan(spectrum_t *s, const float *x, int n)
{
    BEGIN
    for (int i = 0; i < n; i++) {
        if (x[i] > 0.5f) s->peaks[s->count++] = x[i];
    }
    for (int i = 0; i < s->width; i++)
        s->trace[i] = x[i];
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(handle, signal):
    lib.scan(handle, signal.ctypes.data, len(signal))
def main(handle, signals):
    for signal in signals:
        run(handle, signal)
"""
FLOATS = int.from_bytes(struct.pack("<ff", 0.25, 0.75), "little")


def found(folder: Path, *, kind: str = "float", begin: str = "", pointer: int = FLOATS, source: str = SOURCE) -> Any:
    view = native_view(
        folder, PROGRAM, source.replace("TYPE", kind).replace("BEGIN", begin), at="lib.scan",
        way=[("scan", "s->trace[i] =")], outer="run(handle, signal)", numbers={"handle": DATA},
        arrays=[("signal", OTHER, "float32", (50,))], addr=pointer,
    )  # fmt: skip
    view.process.snapshot.storages = SimpleNamespace(by_size=lambda: ())
    view.instruction = SimpleNamespace(base_value=pointer, scale=4, index_value=0, addr=pointer)
    return overrun_field(view)


def test_array_before_a_pointer_that_holds_its_kind_of_numbers_was_written_beyond_its_end(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told.summary == (
        "`trace` of spectrum_t holds two float32 numbers, 0.25 and 0.75, as `peaks`, which lies before it and has 64 "
        "elements (ops.c:1), was written beyond its end by ops.c:7 (`if (x[i] > 0.5f) s->peaks[s->count++] = x[i];`)"
    )
    assert told.advice.startswith("Set `count` to 0 where a new round begins")
    again = found(tmp_path, begin="s->count = 0;")
    assert again.advice.startswith("Let scan() refuse what has no room in `peaks` before ops.c:7 writes it")


@pytest.mark.parametrize(
    "how",
    [
        {"kind": "double"},
        {"pointer": 0x7F00_0000_1000},
        {"begin": "if (s->count >= 64) return;"},
        {"source": SOURCE + "int full(const spectrum_t *s) { return s->count >= 64; }\n"},
        {"source": SOURCE.replace("float scale; float *trace;", "").replace("int width;", "float *trace; int width;")},
        {"source": SOURCE.replace("peaks[s->count++]", "peaks[i & 63]")},
    ],
)
def test_pointer_that_something_else_may_have_overwritten_is_not_laid_to_the_array(
    how: dict[str, Any], tmp_path: Path
) -> None:
    """Another type of numbers, an address, a test, an array behind it, an index that cannot leave it."""
    assert found(tmp_path, **how) is None


def test_counter_that_no_line_sets_back_is_told_so(tmp_path: Path) -> None:
    view = native_view(
        tmp_path, PROGRAM, SOURCE.replace("TYPE", "float").replace("BEGIN", ""), at="lib.scan",
        way=[("scan", "s->peaks[")], outer="run(handle, signal)", numbers={"handle": DATA},
        arrays=[("signal", OTHER, "float32", (50,))], addr=DATA + 8 + 4 * 4000,
    )  # fmt: skip
    told = struct_array(view)
    assert told is not None
    assert told.advice.endswith("No line sets `count` back to 0: do that where a new round begins, if it is not to "
                                "count over all calls.")  # fmt: skip
