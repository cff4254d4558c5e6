"""Local arrays of a C function are read from its source, if that is older than the library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.native_source import local_arrays
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdio.h>
#define MOST 64  // channels
static double table[512];
static int other(void) {
    float rest[7];
    return rest[0];
}
int load(const char *folder, int n)
{
    char name[96], *end;
    double mean[MOST], var[MOST][3];
    unsigned char bytes[n];
    int i = table[3];
    float *out = malloc(sizeof(float[4]));
    sprintf(name, "%s", folder);
}
"""


def frame(run: Path, text: str = SOURCE, line: int = 16, file: str = "scans.c", newer: bool = False) -> NativeFrame:
    source, library = run / file, run / "libscans.so"
    source.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(source, (2000, 2000) if newer else (1000, 1000))
    os.utime(library, (1500, 1500))
    lines = [SourceLine(function="load", file=str(source), line=line)]
    return NativeFrame(function="load", image=str(library), lines=lines)


def test_arrays_of_the_function_are_found_with_their_sizes(tmp_path: Path) -> None:
    """Not those of another function, of the file, or of an unknown length without it; a macro is a number."""
    found = local_arrays(frame(tmp_path))
    assert [(item.type, item.name, item.bounds, item.size) for item in found] == [
        ("char", "name", "[96]", 96),
        ("double", "mean", "[MOST]", 64),
        ("double", "var", "[MOST][3]", 64),
        ("unsigned char", "bytes", "[n]", None),
    ]
    assert [item.words for item in found[:2]] == [
        "`char name[96]` (scans.c:10)",
        "`double mean[MOST]` (64, scans.c:11)",
    ]


def test_inline_function_of_a_header_has_no_arrays_of_the_program(tmp_path: Path) -> None:
    """With _FORTIFY_SOURCE, sprintf() is one: the line of the program is behind it."""
    own = frame(tmp_path)
    inner = SourceLine(function="sprintf", file="/usr/include/x86_64-linux-gnu/bits/stdio2.h", line=30)
    inside = NativeFrame(function="load", image=own.image, lines=[inner, *(own.lines or ())])
    assert [item.name for item in local_arrays(inside)] == ["name", "mean", "var", "bytes"]


@pytest.mark.parametrize(
    "item",
    [
        {"newer": True},
        {"file": "scans.txt"},
        {"line": 99},
        {"text": "int load(int n) {\n    return n;\n}\n", "line": 3},
    ],
)
def test_no_arrays_of_a_source_that_may_be_another_one(item: dict[str, object], tmp_path: Path) -> None:
    assert local_arrays(frame(tmp_path, **item)) == []  # type: ignore[arg-type]


def test_a_frame_without_source_has_no_arrays(tmp_path: Path) -> None:
    assert local_arrays(NativeFrame(function="load", image=str(tmp_path / "libscans.so"))) == []
    missing = [SourceLine(function="load", file="/nowhere/scans.c", line=3)]
    assert local_arrays(NativeFrame(function="load", image=str(tmp_path / "libscans.so"), lines=missing)) == []
