"""Null pointers that the program's own C gives to functions of the C library."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.null_in_libc import null_in_libc
from pytracer.report.job import NativeFrame
from tests.support.native_views import native_view

SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define LOG_FILE "/home/anna/logs/cells.txt"
static const char *FOLDER = "/data/maps";
int cells(const char *path, int n, char *text)
{
    char line[80];
    MADE
    BETWEEN
    for (int i = 0; i < n; i++) {
        USE /* here */
    }
    return n;
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(path, n, text):
    return lib.cells(path.encode(), n, text)
run(1, 2, 3)
"""


def found(
    folder: Path, *, made: str, use: str, between: str = "", inner: str = "fprintf", base: int = 0,
    access: str | None = None, source: str = SOURCE,
) -> Any:  # fmt: skip
    source = source.replace("MADE", made).replace("USE", use).replace("BETWEEN", between)
    view = native_view(folder, PROGRAM, source, at="lib.cells", way=[("cells", "/* here */")], access=access)
    view.native_stack.insert(0, NativeFrame(function=inner, image="/lib/x86_64-linux-gnu/libc.so.6"))
    view.instruction = SimpleNamespace(base="rdi", base_value=base)
    return null_in_libc(view)


def test_stream_that_could_not_be_opened_is_named_with_its_fixed_path(tmp_path: Path) -> None:
    ended = "int done(FILE *f) { return fclose(f); }"
    made = 'FILE *log = fopen(LOG_FILE, "a");'
    item = found(tmp_path, made=made, use='fprintf(log, "%d\\n", i);', source=SOURCE + ended)
    assert item.summary == '`log` is null, as `fopen(LOG_FILE, "a")` at ops.c:9 returned it'
    assert item.advice == (
        'Check `log` before ops.c:12 uses it: nothing does behind `fopen(LOG_FILE, "a")` at ops.c:9. Let cells() '
        "report that to its caller. fopen() returns null where its folder does not exist here, or this user may not "
        'open the file. The path is always `"/home/anna/logs/cells.txt"` (`LOG_FILE`): make it an argument.'
    )


def test_file_that_is_never_closed_may_be_one_of_too_many(tmp_path: Path) -> None:
    """As of a log for each batch: its folder is there, and the user may write to it."""
    item = found(tmp_path, made='FILE *log = fopen(path, "a");', use='fprintf(log, "%d\\n", i);')
    assert (
        "or this user may not open the file. Or where too many are open (`ulimit -n`): nothing in that file calls "
        "fclose(), so each call may add one." in item.advice
    )


@pytest.mark.parametrize(
    ("made", "use", "inner"),
    [
        ('FILE *f = fopen(path, "r");', "fgets(line, sizeof line, f);", "_IO_fgets"),
        ('FILE *f; f = fopen(path, "rb");', "fread(text, 1, n, f);", "_IO_fread"),
        ("DIR *d = opendir(FOLDER);", "struct dirent *e = readdir(d);", "readdir"),
        ('const char *home = getenv("MAPS_HOME");', "n += strlen(home);", "__strlen_avx2"),
        ("char *colon = strchr(path, ':');", "n += atoi(colon);", "____strtol_l_internal"),
        ('FILE *f = std::fopen(path, "r");', "std::fseek(f, 0, SEEK_END);", "fseek"),
    ],
)
def test_other_calls_that_return_null_are_found(made: str, use: str, inner: str, tmp_path: Path) -> None:
    item = found(tmp_path, made=made, use=use, inner=inner)
    assert item is not None and " returns null where " in item.advice


def test_earlier_uses_in_branches_are_no_tests(tmp_path: Path) -> None:
    made = 'FILE *f = fopen(path, "w");'
    assert found(tmp_path, made=made, between='if (n > 5) fputs("many", f);', use="fputc(i, f);") is not None


@pytest.mark.parametrize(
    "how",
    [
        {"between": "if (!f) return -1;"},
        {"between": "if (f == NULL) f = stderr;"},
        {"between": "assert(f);"},
        {"use": "fprintf(stderr, \"%d\", i);"},
        {"use": "fwrite(text, 1, n, f);", "inner": "__mempcpy_avx_unaligned_erms"},  # the text is null
        {"use": "strcpy(text, path);"},  # which of both?
        {"made": 'FILE *f = n ? fopen(path, "r") : stdin;'},
        {"made": 'FILE *f = NULL; if (n) f = fopen(path, "r");'},
        {"base": 0x5000},
        {"use": 'fscanf(f, "%s", text);', "access": "write"},  # what is filled
        {"access": "write"},
        {"inner": "cblas_dgemm"},
    ],
)  # fmt: skip
def test_tested_streams_and_other_pointers_are_not_told(how: dict[str, Any], tmp_path: Path) -> None:
    inner = how.pop("inner", "fgets")
    given = {"made": 'FILE *f = fopen(path, "r");', "use": "fgets(line, 80, f);", **how}
    if inner == "cblas_dgemm":
        source = SOURCE.replace("MADE", given["made"]).replace("USE", given["use"]).replace("BETWEEN", "")
        view = native_view(tmp_path, PROGRAM, source, at="lib.cells", way=[("cells", "/* here */")])
        view.native_stack.insert(0, NativeFrame(function=inner, image="/usr/lib/libopenblas.so.0"))
        view.instruction = SimpleNamespace(base="rdi", base_value=0)
        assert null_in_libc(view) is None
        return
    assert found(tmp_path, inner=inner, **given) is None


PART, NEXT = 'char *part = strtok(text, ",");', 'sum += atof(part); part = strtok(NULL, ",");'


@pytest.mark.parametrize("base", [0, (1 << 64) - 1])
def test_text_with_too_few_parts_is_named_with_the_call_that_finds_none(base: int, tmp_path: Path) -> None:
    """strtod() steps one back before it reads."""
    item = found(tmp_path, made=PART, use=NEXT, inner="____strtod_l_internal", base=base)
    made = '`part` is null, as `strtok(NULL, ",")` at ops.c:12 (or ops.c:'
    assert item.summary.startswith(made) and item.summary.endswith(", of an empty text) returned it")
    assert "compare how many parts it has with how many are taken" in item.advice


@pytest.mark.parametrize(
    ("made", "use"),
    [
        (PART, "if (!part) break; " + NEXT),
        (PART, NEXT.replace("strtok", "next_of")),
        (PART + " keep(part);", NEXT),
    ],
)
def test_part_that_is_asked_for_or_may_be_another_is_not_named(made: str, use: str, tmp_path: Path) -> None:
    assert found(tmp_path, made=made, use=use, inner="____strtod_l_internal") is None
