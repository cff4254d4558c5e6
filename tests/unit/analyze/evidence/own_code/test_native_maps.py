"""The program's own C that maps a file by what its head says, by the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.native_maps import native_map
from tests.support.native_views import native_view

SOURCE = """\
vectors_t *vectors_open(const char *path)
{
    int fd = open(path, O_RDONLY);
    read(fd, head, sizeof(head));
    MEASURE
    char *base = mmap(0, sizeof(head) + head[0] * 4, PROT_READ, MAP_SHARED, fd, 0);
    return made(base);
}
float vectors_norm(const vectors_t *v, long i)
{
    return v->rows[i];
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(vectors, i):
    return lib.vectors_norm(vectors, i)
run(1, 2)
"""


def found(folder: Path, source: str) -> Any:
    view = native_view(
        folder, PROGRAM, source, at="lib.vectors_norm", way=[("vectors_norm", "return v->rows")], access="read"
    )
    return native_map(view)


def test_length_of_a_head_is_named_with_what_the_file_held(tmp_path: Path) -> None:
    told = found(tmp_path, SOURCE.replace("MEASURE", ""))
    assert told is not None
    assert told.advice(12288, 4096) == (
        "ops.c:6 maps `sizeof(head) + head[0] * 4` bytes, here up to byte 12288, and nothing in vectors_open() asks "
        "how long the file is (fstat()), which held 4096: it may never have been longer, as after a download, a copy "
        "or a writer that did not finish. Let vectors_open() refuse such a file, and make it again."
    )


@pytest.mark.parametrize(
    "measure",
    [
        "fstat(fd, &st); if (st.st_size < n) return 0;",
        "long end = lseek(fd, 0, SEEK_END);",
        "if (!has_rows(fd, head[0])) return 0;",  # a function that may ask
    ],
)
def test_file_that_is_measured_was_as_long_once(measure: str, tmp_path: Path) -> None:
    assert found(tmp_path, SOURCE.replace("MEASURE", measure)) is None
    assert found(tmp_path, SOURCE.replace("mmap(", "read_all(")) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*path)\n", "*path, long nbytes)\n"),
        ("MEASURE", "if (file_bytes(path) < 8) return 0;"),  # a function of another file
    ],
)
def test_length_that_somebody_else_may_have_asked_for_is_not_called_unchecked(
    old: str, new: str, tmp_path: Path
) -> None:
    source = SOURCE.replace(old, new).replace("MEASURE", "")
    source = source.replace("sizeof(head) + head[0] * 4", "nbytes") if "nbytes" in new else source
    assert found(tmp_path, source) is None
