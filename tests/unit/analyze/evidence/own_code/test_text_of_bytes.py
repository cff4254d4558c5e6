"""The text "b'...'" of bytes, which C was given for the bytes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.text_of_bytes import text_of_bytes
from pytracer.analyze.evidence.phrases import in_function
from tests.support.native_views import OTHER, native_view

SOURCE = """\
void unpack(const char *counts, unsigned char *mask)
{
    for (int at = 0; counts[at]; at++)
        for (int k = 0; k < counts[at]; k++) *mask++ = at & 1;
}
"""
PROGRAM = """\
import ctypes, json
import numpy as np
lib = ctypes.CDLL("libops.so")
def pack(mask):
    out = ctypes.create_string_buffer(64)
    lib.pack(mask.ctypes.data, out)
    return {{"size": mask.shape, "counts": out.value}}
def save(masks, path):
    rows = []
    for mask in masks:
        rle = pack(mask)
        rows.append({{"size": rle["size"], "counts": {shown}}})
    json.dump(rows, open(path, "w"))
def run(row):
    counts = row["{key}"]
    if isinstance(counts, str):
        counts = counts.encode()
    mask = np.zeros(64, np.uint8)
    lib.unpack(counts, mask.ctypes.data)
def main(path):
    for row in json.load(open(path)):
        run(row)
"""
SHOWN = 'str(rle["counts"])'


def found(folder: Path, shown: str = SHOWN, key: str = "counts", **how: Any) -> Any:
    program = PROGRAM.format(shown=shown, key=key)
    return text_of_bytes(
        native_view(folder, program, SOURCE, at="lib.unpack", way=[("unpack", "for (int k")], outer="run(row)", **how)
    )


def test_line_that_makes_the_text_of_bytes_is_named_with_what_to_put_there(tmp_path: Path) -> None:
    """By the key below which the text was put, and from which the line reads it."""
    told = found(tmp_path)
    assert told.summary == "`counts` may be the text of bytes, \"b'...'\", which line 12 makes by `str(rle['counts'])`"
    assert told.advice.startswith(
        "See whether `counts` begins with b' before it is passed. If it does, put `rle['counts'].decode()` in place of "
        "`str(rle['counts'])` at line 12, below \"counts\""
    )
    assert told.evidence is None


def test_text_that_memory_shows_is_known(tmp_path: Path) -> None:
    told = found(tmp_path, memory=[("rbp", OTHER, b"b'`3h0l4000O2N2'\x00")])
    assert told.summary == "`counts` is the text of bytes, \"b'`3h0l4...\", which line 12 makes by `str(rle['counts'])`"
    assert told.advice.startswith("Put `rle['counts'].decode()` in place of")
    assert "rbp points at the text" in told.evidence.sentence


@pytest.mark.parametrize(
    "shown", ["repr(rle['counts'])", "f\"{rle['counts']}\"", "'%s' % rle['counts']", "'{}'.format(rle['counts'])"]
)
def test_other_ways_to_the_text_of_bytes(shown: str, tmp_path: Path) -> None:
    assert found(tmp_path, shown).text in (shown, shown.replace("f\"{rle['counts']}\"", "f\"{rle['counts']}\""))


@pytest.mark.parametrize(
    ("shown", "key"),
    [
        ('rle["counts"].decode()', "counts"),
        ('str(rle["counts"], "ascii")', "counts"),
        ('str(rle["size"])', "counts"),
        ("str(len(rows))", "counts"),
        (SHOWN, "segments"),
    ],
    ids=["decoded", "decoded by str()", "of a tuple", "of a number", "another key"],
)
def test_text_of_something_else_is_no_reason(shown: str, key: str, tmp_path: Path) -> None:
    """Or one that the line does not read."""
    assert found(tmp_path, shown, key) is None


@pytest.mark.parametrize("taken", ["ast.literal_eval(counts)", "counts[2:-1].encode()"])
def test_text_that_the_line_takes_apart_again_is_no_reason(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PROGRAM", PROGRAM.replace("counts.encode()", taken))
    assert found(tmp_path) is None


def test_library_that_is_gone_is_read_from_the_source_beside_the_program(tmp_path: Path) -> None:
    """As one that the program built in a temporary folder."""
    assert found(tmp_path, gone=True) is not None


def test_function_of_a_library_that_is_gone_is_the_one_that_the_line_calls(tmp_path: Path) -> None:
    """Its file was removed, and with it all names."""
    program = PROGRAM.format(shown=SHOWN, key="counts")
    way = [("unpack", "for (int k")]
    view = native_view(tmp_path, program, SOURCE, at="lib.unpack", way=way, outer="run(row)", gone=True)
    assert in_function(view) == " in libops.so, below unpack (ops.c:1)"
