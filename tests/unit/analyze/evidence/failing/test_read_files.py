"""What is read otherwise than it was written: buffers at their end, names of archives, padded records, held locks."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport


def said(
    folder: Path, source: str, way: list[tuple[str, int]], error: tuple[str, str], values: dict[str, str] | None = None
) -> Explanation:
    """Of an exception with these frames, innermost first."""
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    held = [VariableReport(name=name, value=value) for name, value in (values or {}).items()]
    stack = [PythonFrame(function=name, file=str(program), line=line) for name, line in way]
    return explained(snapshot, ExceptionReport(type=error[0], message=error[1], variables=held), stack)


BUFFER = """import io, torch
def packed(model):
    buffer = {made}
    torch.save(model.state_dict(), buffer)
    {then}
    return buffer
def clone(model):
    return torch.load(packed(model))
clone(net)
"""
COPY = [("clone", 8), ("<module>", 9)]


@pytest.mark.parametrize("made", ["io.BytesIO()", "tempfile.TemporaryFile()", "tempfile.TemporaryFile('w+b')"])
def test_buffer_that_is_read_at_its_end(made: str, tmp_path: Path) -> None:
    """By the line that writes it."""
    found = said(tmp_path, BUFFER.format(made=made, then="pass"), COPY, ("EOFError", "Ran out of input"))
    assert (
        found.subject == "`buffer` is read from where writing it left off, its end: no line sets it back behind line 4"
    )
    assert "`buffer.seek(0)`" in (found.words or "")


@pytest.mark.parametrize(
    ("made", "then", "error"),
    [
        ("io.BytesIO()", "buffer.seek(0)", ("EOFError", "Ran out of input")),
        ("io.BytesIO(data)", "pass", ("EOFError", "Ran out of input")),
        ("open('a.pt', 'wb')", "pass", ("EOFError", "Ran out of input")),
        ("io.BytesIO()", "pass", ("UnpicklingError", "invalid load key, 'x'.")),
    ],
)
def test_other_buffers_are_not_at_their_end(made: str, then: str, error: tuple[str, str], tmp_path: Path) -> None:
    """The look-alikes."""
    found = said(tmp_path, BUFFER.format(made=made, then=then), COPY, error)
    assert "left off" not in (found.subject or "")


def test_buffer_that_a_branch_may_have_left_empty(tmp_path: Path) -> None:
    """Of another rank."""
    source = BUFFER.format(made="io.BytesIO()", then="pass").replace("    torch.save", "    if rank == 0: torch.save")
    assert "left off" not in (said(tmp_path, source, COPY, ("EOFError", "Ran out of input")).subject or "")


KEPT = """import io, torch
class Best:
    def __init__(self):
        self.buffer, self.loss = None, 9.0
    def offer(self, model, loss):
        self.loss, self.buffer = loss, {made}
        torch.save(model.state_dict(), self.buffer)
    def restore(self, model):
        model.load_state_dict(torch.load(self.buffer))
Best().restore(net)
"""
RESTORE = [("Best.restore", 9), ("<module>", 10)]


def test_buffer_that_a_method_kept_is_read_at_its_end(tmp_path: Path) -> None:
    """Also where it is set together with another attribute, and None before."""
    found = said(tmp_path, KEPT.format(made="io.BytesIO()"), RESTORE, ("EOFError", ""))
    assert "`self.buffer` is read from where writing it left off" in (found.subject or "")
    assert "`self.buffer.seek(0)`" in (found.words or "")


def test_file_that_a_method_kept_may_be_another(tmp_path: Path) -> None:
    """No buffer of its own."""
    found = said(tmp_path, KEPT.format(made="open('a.pt', 'w+b')"), RESTORE, ("EOFError", ""))
    assert "left off" not in (found.subject or "")


ARCHIVE = """import numpy as np
def export(path, x, y):
    np.savez({saved})
def load(path):
    with np.load(path) as data:
        return data["x"]
export("out/rows.npz", 1, 2)
load("out/rows.npz")
"""
LOAD = [("load", 6), ("<module>", 8)]
NO_X = ("KeyError", "'x is not a file in the archive'")


def test_arrays_that_were_saved_without_names(tmp_path: Path) -> None:
    """They are called by their numbers."""
    found = said(tmp_path, ARCHIVE.format(saved="path, x, y"), LOAD, NO_X)
    assert found.subject == "line 3 saves its arrays without names, so that they are called 'arr_0' and 'arr_1'"
    assert "`np.savez(path, x=x, y=y)`" in (found.words or "")


def test_arrays_that_were_saved_by_other_names(tmp_path: Path) -> None:
    """And those of which not all names are shown, or of another file."""
    found = said(tmp_path, ARCHIVE.format(saved="path, inputs=x, y=y"), LOAD, NO_X)
    assert found.subject == "line 3 saves its arrays as 'inputs' and 'y'"
    assert "saves its" not in (said(tmp_path, ARCHIVE.format(saved="path, **rows"), LOAD, NO_X).subject or "")
    assert "saves its" not in (said(tmp_path, ARCHIVE.format(saved="'other.npz', y=y"), LOAD, NO_X).subject or "")


OBJECTS = """import numpy as np
def export(path, rows):
    np.savez(path, rows=np.array(rows, dtype=object), y=np.zeros(2))
def load(path):
    data = np.load(path)
    return data["rows"]
export("out/rows.npz", [[1], [1, 2]])
load("out/rows.npz")
"""


def test_line_that_saved_an_array_of_objects(tmp_path: Path) -> None:
    """Below the key that is read."""
    error = ("ValueError", "Object arrays cannot be loaded when allow_pickle=False")
    found = said(tmp_path, OBJECTS, LOAD, error)
    assert found.subject == "line 3 saved `np.array(rows, dtype=object)` there, which is an array of Python objects"
    other = said(tmp_path, OBJECTS.replace("np.load(path)", 'np.load("base.npz")'), LOAD, error)
    assert "saved" not in (other.subject or "")


RECORDS = """import struct
FORMAT = "{form}"
def rows(file):
    chunk = file.read(12)
    return struct.unpack(FORMAT, chunk)
rows(open("a.bin", "rb"))
"""
UNPACK = [("rows", 5), ("<module>", 6)]


def test_format_with_the_gaps_of_native_alignment(tmp_path: Path) -> None:
    """Not where the bytes are too few without them, too, or the format has no gaps."""
    error = ("struct.error", "unpack requires a buffer of 16 bytes")
    found = said(tmp_path, RECORDS.format(form="iq"), UNPACK, error, {"chunk": "bytes of 12"})
    assert found.subject == (
        "the format 'iq' takes 16 bytes, 4 of them gaps as C aligns its fields, and `chunk` has 12"
    )
    assert "'<iq'" in (found.words or "")
    cut = said(tmp_path, RECORDS.format(form="iq"), UNPACK, error, {"chunk": "bytes of 7"})
    assert "gaps" not in (cut.subject or "")
    packed = said(tmp_path, RECORDS.format(form="<qq"), UNPACK, error, {"chunk": "bytes of 12"})
    assert "gaps" not in (packed.subject or "")


LOCK = """import os
class Lock:
    def __init__(self, folder):
        self.path = os.path.join(folder, ".lock")
    def acquire(self):
        self.fd = {opens}
    def release(self):
        {releases}
lock = Lock("out")
lock.acquire()
"""
TAKE = [("Lock.acquire", 6), ("<module>", 10)]
THERE = ("FileExistsError", "[Errno 17] File exists: 'out/.lock'")


@pytest.mark.parametrize("opens", ["os.open(self.path, os.O_CREAT | os.O_EXCL)", "open(self.path, 'x')"])
def test_lock_that_is_held_or_left(opens: str, tmp_path: Path) -> None:
    """With the line that would have released it."""
    found = said(
        tmp_path, LOCK.format(opens=opens, releases="os.remove(self.path)"), TAKE, THERE, {"file": "out/.lock"}
    )
    assert found.subject == (
        "the lock is held: its holder still runs, or has left without line 8 (`os.remove(self.path)`), which removes it"
    )
    assert "`finally`" in (found.words or "")


@pytest.mark.parametrize(
    ("opens", "releases"),
    [
        ("os.open(self.path, os.O_CREAT | os.O_EXCL)", "os.remove(self.other)"),
        ("os.makedirs(self.path)", "os.remove(self.path)"),
        ("open(self.path, 'w')", "os.remove(self.path)"),
    ],
)
def test_other_files_are_no_locks(opens: str, releases: str, tmp_path: Path) -> None:
    """The look-alikes."""
    found = said(tmp_path, LOCK.format(opens=opens, releases=releases), TAKE, THERE, {"file": "out/.lock"})
    assert "the lock" not in (found.subject or "")


def test_output_that_is_there_is_no_lock(tmp_path: Path) -> None:
    """By its name."""
    source = LOCK.format(opens="open(self.path, 'x')", releases="os.remove(self.path)")
    source = source.replace(".lock", "a.json").replace("Lock", "Export").replace("lock", "export")
    way = [("Export.acquire", 6), ("<module>", 10)]
    assert "the lock" not in (said(tmp_path, source, way, THERE, {"file": "out/a.json"}).subject or "")


def test_path_with_a_line_break(tmp_path: Path) -> None:
    """As a name has that was read from a file."""
    values = {"file": "out/a.pt\n", "file missing part": "a.pt\n", "file folder": "out", "file like it": "a.pt"}
    error = ("FileNotFoundError", "[Errno 2] No such file or directory: 'out/a.pt\\n'")
    found = said(tmp_path, "open(path)\n", [("<module>", 1)], error, values)
    assert found.subject == "the path ends with '\\n', as a line of a file does"
    assert ".strip()" in (found.words or "")


EMBEDDING = """import numpy as np, torch
def prepare(path):
    np.zeros(99).astype(np.{wrote}).tofile(path)
def load(path):
    return torch.from_numpy(np.fromfile(path, dtype=np.{read}))
def forward(table, ids):
    return table(ids)
prepare("out/tokens.bin")
forward(torch.nn.Embedding(500, 8), load("out/tokens.bin").long())
"""


@pytest.mark.parametrize(
    ("wrote", "read", "values", "named"),
    [
        ("uint16", "int32", "852127..32571693", True),  # 159 and 13, 301 and 497
        ("uint16", "uint16", "852127..32571693", False),
        ("uint16", "int32", "3..32571693", False),  # 3 is one number
        ("uint16", "int32", "852127..52571693", False),  # 12845 is no row
    ],
)
def test_indices_that_are_two_numbers_in_one(wrote: str, read: str, values: str, named: bool, tmp_path: Path) -> None:
    """Both lines, where the parts of both ends are rows."""
    held = {"table": "Embedding(500, 8) float32", "input of table": f"[99] int64, {values}", "ids": "[99] int64"}
    way = [("forward", 7), ("<module>", 9)]
    found = said(
        tmp_path, EMBEDDING.format(wrote=wrote, read=read), way, ("IndexError", "index out of range in self"), held
    )
    assert ("line 5 reads as int32 what line 3 writes as uint16" in (found.subject or "")) is named, found
