"""A null pointer that C keeps and passes to libc, as the only call that sets it returned it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.null_member import null_member
from pytracer.report.job import NativeFrame
from tests.support.native_views import native_view

SOURCE = """\
typedef struct { FILE *f; uint8_t *buf; uint64_t cap; } Reader;
Reader *reader_open(const char *path)
{
    Reader *r = calloc(1, sizeof *r);
    r->f = fopen(path, "rb");
    OPENED
    return r;
}
long reader_next(Reader *r, float *out)
{
    uint64_t length;
    uint32_t crc;
    BEFORE
    fread(&length, 8, 1, r->f);
    fread(&crc, 4, 1, r->f);
    if (length > r->cap)
        r->buf = realloc(r->buf, length);
    fread(r->buf, 1, length, r->f);
    memcpy(out, r->buf, length);
    return length / 4;
}
void reader_close(Reader *r)
{
    fclose(r->f);
    CLOSED
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(handle, out):
    lib.reader_next(handle, out.ctypes.data)
handle = lib.reader_open(path.encode())
run(handle, out)
"""


def found(
    folder: Path, running: str = "fread(&length", *, access: str = "read", opened: str = "", before: str = "",
    closed: str = "", libc: str = "_IO_fread", made: str = "", more: str = "",
) -> Any:  # fmt: skip
    source = SOURCE.replace("OPENED", opened).replace("BEFORE", before).replace("CLOSED", closed)
    source = more + source.replace('r->f = fopen(path, "rb");', made) if made else more + source
    view = native_view(
        folder, PROGRAM, source, at="lib.reader_next", way=[("reader_next", running)], access=access, addr=0
    )
    if libc:
        view.native_stack.insert(0, NativeFrame(function=libc, image="/lib/libc.so.6"))
    return null_member(view)


def test_file_that_was_not_opened_is_named_with_the_line_that_opens_it(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told.summary == '`r->f` is null, which ops.c:5 sets by `fopen(path, "rb")`, and nothing checks it'
    assert told.advice == (
        'Look at what `fopen(path, "rb")` (ops.c:5) was to open where line 5 calls reader_open(): it could not be '
        "opened. Let reader_open() check what fopen() returns, and return an error to Python."
    )


def test_size_that_was_read_from_a_file_is_named(tmp_path: Path) -> None:
    """A write is of what is filled, not of the file."""
    told = found(tmp_path, "fread(r->buf", access="write")
    assert told.summary == (
        "`r->buf` is null, which ops.c:17 sets by `realloc(r->buf, length)`, and nothing checks it; ops.c:14 reads "
        "`length` from a file"
    )
    assert "Refuse what is longer than the file" in told.advice


@pytest.mark.parametrize(
    "how",
    [
        {"opened": "if (!r->f) { free(r); return NULL; }"},
        {"before": "if (r->f == NULL) return -1;"},
        {"made": 'if ((r->f = fopen(path, "rb")) == NULL) return r;'},  # the program went on with it
        {"made": 'if (!(r->f = fopen(path, "rb"))) return r;'},
        {"before": "if (!is_open(r)) return -1;", "more": "int is_open(Reader *r) { return r->f != NULL; }"},
        {"before": "if (!file_of(r)) return -1;", "more": "FILE *file_of(Reader *r) { return r->f; }"},
        {"closed": "r->f = NULL;"},  # it may have been closed before
        {"opened": 'if (strstr(path, "tmp")) r->f = tmpfile();'},
        {"libc": ""},  # the function itself went through a pointer
        {"running": "memcpy(out", "access": "write"},  # of the caller
    ],
)
def test_nothing_is_said_where_it_may_be_otherwise(how: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, **how) is None
