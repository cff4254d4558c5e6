"""Files of plain numbers that are read as another type, or with a header: by the line that writes them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MAPPED = """import json, os
import numpy as np
KIND = np.float32
def prepare(root, docs, dim):
    feats = np.memmap(os.path.join(root, "feats.bin"), dtype={wrote}, mode="w+", shape=(docs, dim))
    feats[:] = 0
def load(root):
    return np.memmap(os.path.join(root, "feats.bin"), dtype={read}, mode="r", shape=(64, 32))
prepare("data", 64, 32)
load("data")
"""
WAY = [("load", 8), ("<module>", 10)]
SHORT = "mmap length is greater than file size"
READ = """import numpy as np
CFG = dict(path="emb/items.bin", dim=12)
def dump(cfg, rows):
    with open(cfg["path"], "wb") as out:
        {first}
        out.write(rows.astype("float32").tobytes())
def read(cfg):
    raw = np.fromfile(cfg["path"], dtype={read})
    return raw.reshape(50, 12)
dump(CFG, rows())
read(CFG)
"""
READ_WAY = [("read", 9), ("<module>", 11)]


def said(folder: Path, source: str, way: list[tuple[str, int]], message: str, **values: str) -> Explanation:
    """Of a ValueError; `values` with `_` for the spaces in their names."""
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    held = [VariableReport(name=name.replace("_", " "), value=value) for name, value in values.items()]
    error = ExceptionReport(type="ValueError", message=message, variables=held)
    return explained(snapshot, error, [PythonFrame(function=name, file=str(program), line=line) for name, line in way])


@pytest.mark.parametrize("read", ["np.float32", "'float32'", "KIND", "np.dtype('<f4')", "'f4'"])
def test_mapped_file_of_another_type(read: str, tmp_path: Path) -> None:
    """Both lines, and both types."""
    found = said(tmp_path, MAPPED.format(wrote="np.float16", read=read), WAY, SHORT)
    assert found.subject == "line 5 writes feats.bin as float16, and line 8 reads it as float32"
    assert "pass dtype=np.float16 to `np.memmap` at line 8" in (found.words or "")


def test_mapped_file_of_fewer_rows(tmp_path: Path) -> None:
    """Of the same type: how many elements there are, and how many are mapped."""
    source = MAPPED.format(wrote="np.float16", read="np.float16")
    found = said(tmp_path, source, WAY, SHORT, file="data/feats.bin", file_size="3840", file_asked_size="4096")
    assert found.subject == (
        "feats.bin has 1920 elements of float16, and line 8 maps 2048: line 5 makes it with shape=(docs, dim)"
    )
    assert "ended half way" not in (found.words or "")


@pytest.mark.parametrize(
    ("wrote", "read", "sizes"),
    [
        ("np.float16", "np.float16", {}),  # the sizes are not recorded
        ("kind", "np.float16", {}),  # the type is not shown
        ("np.float16", "np.float32", {"file_size": "3840", "file_asked_size": "8192"}),  # it has fewer rows as well
    ],
)
def test_other_short_files_are_not_of_another_type(
    wrote: str, read: str, sizes: dict[str, str], tmp_path: Path
) -> None:
    """The look-alikes."""
    found = said(tmp_path, MAPPED.format(wrote=wrote, read=read), WAY, SHORT, file="data/feats.bin", **sizes)
    assert "reads it as" not in (found.subject or "")


def test_array_of_a_file_of_another_type(tmp_path: Path) -> None:
    """By the number of elements that does not fill the shape."""
    text = "cannot reshape array of size 300 into shape (50,12)"
    found = said(tmp_path, READ.format(first="pass", read="np.float64"), READ_WAY, text)
    assert found.subject == "line 6 writes `cfg['path']` as float32, and line 8 reads it as float64"
    other = said(tmp_path, READ.format(first="pass", read="np.float64"), READ_WAY, text.replace("300", "299"))
    assert "reads it as" not in (other.subject or "")  # other numbers were written, too


def test_array_of_a_file_with_a_header(tmp_path: Path) -> None:
    """The bytes that are too many, and the line that writes something before."""
    text = "cannot reshape array of size 602 into shape (50,12)"
    source = READ.format(first="out.write(np.array([50, 12], dtype=np.int32).tobytes())", read="np.float32")
    found = said(tmp_path, source, READ_WAY, text)
    assert "has 8 bytes more than the shape: line 5 writes" in (found.subject or "")
    assert "pass offset=8 to `np.fromfile` at line 8" in (found.words or "")
    skips = source.replace("dtype=np.float32)\n    return", "dtype=np.float32, offset=8)\n    return")
    assert "bytes more" not in (said(tmp_path, skips, READ_WAY, text).subject or "")
    fewer = said(tmp_path, source, READ_WAY, text.replace("602", "590"))
    assert "bytes more" not in (fewer.subject or "")


def test_two_writers_of_a_file_are_not_told_apart(tmp_path: Path) -> None:
    """Which of them made it is not known."""
    source = READ.format(first="pass", read="np.float64") + "rows().astype('float64').tofile('other/items.bin')\n"
    text = "cannot reshape array of size 300 into shape (50,12)"
    assert "reads it as" not in (said(tmp_path, source, READ_WAY, text).subject or "")
