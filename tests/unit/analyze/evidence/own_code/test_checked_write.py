"""Calls of C that glibc's check of a buffer stopped, and look-alikes that say less."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.checked_write import checked_write
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
HEADER = "/usr/include/x86_64-linux-gnu/bits/stdio2.h"
SOURCE = """#include <stdio.h>
struct entry {{ char name[16]; }};
static void note(const char *file, const char *list, int known, struct entry *e)
{{
    char line[96];
    char rows[4][32];
    {call}
    fputs(line, stderr);
}}
int load(const char *path, const char *list, float *data)
{{
    note(path, list, data != NULL, NULL);
    return 0;
}}
"""
PROGRAM = """def read(lib, path, out):
    lib.load(str(path).encode(), b"bad.list", out.ctypes.data)
"""
PRINTED = "*** buffer overflow detected ***: terminated"


def view_of(
    folder: Path,
    call: str,
    checked: str | None = "__sprintf_chk",
    inline: str = "sprintf",
    *,
    source: bool = True,
    text: str | None = PRINTED,
    image: str | None = None,
    check: str = "__chk_fail",
    takes: str = "const char *file",
) -> Any:
    """A process that died below `note()`, which the compiler put into `load()`."""
    file, library, program = folder / "load.c", folder / "libload.so", folder / "train.py"
    if source:
        file.write_text(SOURCE.format(call=call).replace("const char *file", takes), encoding="utf-8")
    program.write_text(PROGRAM, encoding="utf-8")
    library.touch()
    lines = [
        SourceLine(function=inline, file=HEADER, line=30),
        SourceLine(function="note", file=str(file), line=7),
        SourceLine(function="load", file=str(file), line=12 + call.count("\n")),
    ]
    stack = [
        NativeFrame(function="abort", image=LIBC),
        NativeFrame(function="__fortify_fail", image=LIBC),
        NativeFrame(function=check, image=LIBC),
        *((NativeFrame(function="_IO_str_chk_overflow", image=LIBC), NativeFrame(function=checked, image=LIBC))
          if checked else ()),
        NativeFrame(function="load", image=image or str(library), lines=lines if image is None else None),
        NativeFrame(function="ffi_call", image="/lib/libffi.so.8"),
    ]  # fmt: skip
    frame = PythonFrame("read", str(program), 2)
    crash = SimpleNamespace(abort_text=text, python_stack=(frame,), python_threads=(), arrays=(), images=())
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=1 << 62, version=(1, 9))
    return SimpleNamespace(
        native_stack=stack, crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=()
    )


@pytest.mark.parametrize(
    ("call", "name", "what", "advice"),
    [
        (
            'sprintf(line, "%s %s\\n", file, known ? "size" : "missing");',
            "sprintf",
            "note() (load.c:7) writes a text by sprintf() that `char line[96]` (load.c:5) has no room for",
            ("Write by `snprintf(line, sizeof line, ...)` in note() (load.c:7), or make `line` as large as the longest "
            "text: sprintf() takes no size. The text has `str(path).encode()`, which line 2 passes: look at its "
            "length."),
        ),
        (
            "strcat(line, list);",
            "strcat",
            "note() (load.c:7) adds a text by strcat() that `char line[96]` (load.c:5) has no room for",
            ("Write by snprintf() with the room that is left in `line` in note() (load.c:7), or make `line` as large "
            "as the longest text: strcat() takes no size. The text has `b'bad.list'`, which line 2 passes: look at its "
            "length."),
        ),
        (
            "strncat(line, file, 90);",
            "strncat",
            "note() (load.c:7) adds a text by strncat() that `char line[96]` (load.c:5) has no room for",
            ("Write by snprintf() with the room that is left in `line` in note() (load.c:7), or make `line` as large "
            "as the longest text: the number that strncat() takes bounds what is added, not the buffer. The text has "
            "`str(path).encode()`, which line 2 passes: look at its length."),
        ),
        (
            'sprintf(line + known, "%d", known);',
            "sprintf",
            "note() (load.c:7) writes a text by sprintf() that `char line[96]` (load.c:5) has no room for",
            ("Write by snprintf() with the room that is left in `line` in note() (load.c:7), or make `line` as large "
            "as the longest text: sprintf() takes no size."),
        ),
        (
            "strcpy(rows[known], file);",
            "strcpy",
            "note() (load.c:7) writes a text by strcpy() that `char rows[4][32]` (load.c:6) has no room for",
            ("Write by snprintf() with the size of the buffer in note() (load.c:7), or make `rows` as large as the "
            "longest text: strcpy() takes no size. The text has `str(path).encode()`, which line 2 passes: look at its "
            "length."),
        ),
        (
            "strcpy(e->name, file);",
            "strcpy",
            "note() (load.c:7) writes a text by strcpy() that `e->name` has no room for",
            ("Write by snprintf() with the size of the buffer in note() (load.c:7): strcpy() takes no size. The text "
            "has `str(path).encode()`, which line 2 passes: look at its length."),
        ),
    ],
)  # fmt: skip
def test_text_without_a_size_is_too_long(call: str, name: str, what: str, advice: str, tmp_path: Path) -> None:
    """Of the inlined function, with its array, and the text that Python passes, through both functions."""
    found = checked_write(view_of(tmp_path, call, f"__{name}_chk", name))
    assert found is not None and found.what == what and found.advice == advice
    assert "size that" not in found.what + found.advice


@pytest.mark.parametrize(
    ("call", "name", "checked", "buffer"),
    [
        ("memcpy(line, file, 200);", "memcpy", None, "`char line[96]` (load.c:5)"),
        ("memcpy(line, file, 200);", "memcpy", "__memcpy_chk_avx_unaligned", "`char line[96]` (load.c:5)"),
        ('snprintf(line, 200, "%s", file);', "snprintf", "__snprintf_chk", "`char line[96]` (load.c:5)"),
        ("read(0, line, 200);", "read", "__read_chk", "`char line[96]` (load.c:5)"),
        ("fread(e, 1, 200, f);", "fread", "__fread_chk", "`e`"),
    ],
)
def test_size_of_the_call_is_larger_than_the_buffer(
    call: str, name: str, checked: str | None, buffer: str, tmp_path: Path
) -> None:
    """Some functions leave no frame of their own: the header's inline function has the name."""
    found = checked_write(view_of(tmp_path, call, checked, name))
    assert found is not None
    assert found.what == f"note() (load.c:7) passes {name}() a size that is larger than {buffer}"
    assert found.advice == f"Bound the size that note() (load.c:7) passes to {name}() by that of {buffer}."


def test_call_is_named_without_its_source(tmp_path: Path) -> None:
    """By the frames alone."""
    found = checked_write(view_of(tmp_path, "", source=False))
    assert found is not None
    assert found.what == "note() (load.c:7) writes a text by sprintf() that its buffer has no room for"
    assert (
        found.advice == "Write by snprintf() with the size of the buffer in note() (load.c:7): sprintf() takes no size."
    )


@pytest.mark.parametrize(
    "options",
    [
        {"text": "*** stack smashing detected ***: terminated"},
        {"check": "__stack_chk_fail"},
        {"checked": None, "inline": "deflate"},
        {"image": "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"},
        {"image": "/usr/lib/libm.so.6"},
    ],
    ids=["another text", "the stack's check", "no known call", "torch's call", "the system's call"],
)
def test_other_checks_are_no_such_write(options: dict[str, Any], tmp_path: Path) -> None:
    """The look-alikes."""
    assert checked_write(view_of(tmp_path, 'sprintf(line, "%s", file);', **options)) is None


@pytest.mark.parametrize(
    ("first", "takes", "passed"),
    [
        ("", "const char *file", True),
        ("if (file == NULL) return;", "const char *file", True),
        ("e->file = list; e->n.file = list;", "const char *file", True),
        ("file = strrchr(file, 47) + 1;", "const char *file", False),
        ("file += 5;", "const char *file", False),
        ("while (*file == 32) file++;", "const char *file", False),
        ("file[8] = 0;", "char *file", False),
        ("strsep(&file, list);", "char *file", False),
        ("", "char file", False),
        ("", "unsigned char file", False),
    ],
)
def test_a_parameter_is_the_callers_text_until_the_function_changes_it(
    first: str, takes: str, passed: bool, tmp_path: Path
) -> None:
    found = checked_write(view_of(tmp_path, f'{first} sprintf(line, "%s", file);', takes=takes))
    assert found is not None and ("`str(path).encode()`" in found.advice) == passed


def test_array_of_the_same_name_in_another_function_is_not_meant(tmp_path: Path) -> None:
    """`line` of the caller is no local array of the function that writes."""
    view = view_of(tmp_path, 'char *text = e->name; sprintf(text, "%s", list);')
    found = checked_write(view)
    assert found is not None and "that `text` has no room for" in found.what
