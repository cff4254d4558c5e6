"""Tensors of memory of others whose owner ended, or was resized: class and words, by the rules."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import StorageHit
from pytracer.decode.types.storage_table import StorageTable
from pytracer.report.job import Report, Verdict
from tests.support import scenarios as s
from tests.support.synth import Box

BASE, BYTES, PAGE = 0x7F50_0000_0000, 64 << 20, 4096
BEGINNING = (BASE, BASE + PAGE, "rw-p", 0, "")
LENDS = """class Reader:
    def __init__(self):
        self.raw = bytearray()
    def tensor(self):
        return torch.frombuffer(self.raw, dtype=torch.float32)
    def close(self):
        {}
reader = Reader()
held = reader.tensor()
reader.close()
print(held.sum())
"""
ENDS = """def tensor(path):
    values = np.fromfile(path, dtype="f4").astype("f8")
    return torch._from_blob({}, (9, 9))
held = tensor("a")
print(held.sum())
"""


def report_of(folder: Path, source: str, made: int, failing: int, *maps: tuple[int, int, str, int, str]) -> Report:
    """A fault in a tensor that a line of the program made of memory of others; `maps`: what there is of it."""
    file = folder / "lends.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    box = Box(pid=101).alloc(BASE, BYTES, ("make", str(file), made)).at(500)
    stack = (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")
    python = [("<module>", str(file), failing)]
    box.crash(addr=BASE + PAGE, code=1, native=s.NATIVE[:1], python=python, mappings=[*maps, stack])
    job = s.load(folder, box)
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    storage = replace(snapshot.storages[0], origin="BUFFER", foreign=True)
    crash = replace(snapshot.crash, hits=(StorageHit("covering", storage),))
    snapshot = replace(snapshot, storages=StorageTable.of(storage), crash=crash)
    return build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))


def verdict_of(report: Report) -> Verdict:
    verdict = report.verdict
    assert verdict is not None
    return verdict


def test_buffer_that_was_emptied_is_no_wrong_size(tmp_path: Path) -> None:
    """A page is left where it began: torch.frombuffer() had compared the sizes."""
    verdict = verdict_of(report_of(tmp_path, LENDS.format("self.raw.clear()"), 5, 11, BEGINNING))
    assert (verdict.class_, verdict.confidence) == ("use-after-free", "likely")
    assert "`self.raw.clear()` at line 7 in Reader.close (called at line 10) gave back since" in (verdict.summary or "")
    assert (verdict.advice or "").startswith("Copy where the tensor is made: `.clone()` behind frombuffer() at line 5")


def test_buffer_that_nothing_shrinks_may_have_a_wrong_size(tmp_path: Path) -> None:
    """The look-alike."""
    verdict = verdict_of(report_of(tmp_path, LENDS.format("self.raw[0] = 7"), 5, 11, BEGINNING))
    assert (verdict.class_, verdict.confidence) == ("out-of-bounds", "likely")


def test_buffer_that_is_gone_was_moved(tmp_path: Path) -> None:
    verdict = verdict_of(report_of(tmp_path, LENDS.format("self.raw.extend(b'12')"), 5, 11))
    assert verdict.class_ == "use-after-free"
    assert "it has the memory of the bytearray `self.raw`, which `self.raw.extend(b'12')` at line 7" in (
        verdict.summary or ""
    )


def test_array_that_ended_with_its_function(tmp_path: Path) -> None:
    """Who unmapped the memory is no question any more."""
    report = report_of(tmp_path, ENDS.format("values.ctypes.data"), 3, 5)
    verdict = verdict_of(report)
    assert verdict.class_ == "use-after-free"
    assert "which was freed when tensor() returned, as line 3 takes only the address" in (verdict.summary or "")
    assert "who unmapped the memory" not in ((report.findings or [])[0].missing or ())


def test_address_of_something_else(tmp_path: Path) -> None:
    """The look-alike: of memory that C owns."""
    report = report_of(tmp_path, ENDS.format("lib.frame(path)"), 3, 5)
    assert "values" not in (verdict_of(report).summary or "")
    assert "who unmapped the memory" in ((report.findings or [])[0].missing or ())


TEMPORARY = """class Scans:
    def __init__(self, lib, handle):
        self.lib, self.handle = lib, handle
    def array(self):
        {lends}
    def __del__(self):
        self.lib.list_free(self.handle)
class Loader:
    def batch(self):
        {line}
        {give}
loader = Loader()
held = loader.batch()
print(held.sum())
"""
LENT = "return np.ctypeslib.as_array(self.lib.data(self.handle), shape=(9, 9))"
GIVEN = "return torch.from_numpy(values)"


@pytest.mark.parametrize(
    ("line", "lends", "ends"),
    [
        ("values = self.pipe.run().array()", LENT, "That object ends with that line"),
        ("scans = self.pipe.run(); values = scans.array()", LENT, "That object ends when batch() returns"),
        (
            "values = make(3).array()",
            "return np.frombuffer(self.window(), np.float32)",
            "That object ends with that line",
        ),
    ],
)
def test_owner_that_ended_where_the_array_was_made_is_named(line: str, lends: str, ends: str, tmp_path: Path) -> None:
    """Its finalizer frees what the array is over."""
    source = TEMPORARY.format(line=line, lends=lends, give=GIVEN)
    verdict = verdict_of(report_of(tmp_path, source, 11, 14))
    assert verdict.class_ == "use-after-free"
    assert "; it is of the Scans of line 10 (`" in (verdict.summary or "")
    advice = verdict.advice or ""
    assert (
        ends in advice and "its __del__() (line 7) frees the memory: a clone() of the tensor comes too late" in advice
    )


@pytest.mark.parametrize(
    ("line", "lends", "give"),
    [
        ("self.scans = self.pipe.run(); values = self.scans.array()", LENT, GIVEN),
        ("scans = self.pipe.run(); values = scans.array(); self.kept.append(scans)", LENT, GIVEN),
        ("scans = self.pipe.run(); values = scans.array()", LENT, "return torch.from_numpy(values), scans"),
        ("values = self.pipe.run().array().copy()", LENT, GIVEN),
        ("values = self.pipe.run().array()", LENT.replace("return", "return np.array(") + ")", GIVEN),
        ("values = self.pipe.run().array()", "return Held(self, np.frombuffer(self.window()))", GIVEN),
        ("values = self.pipe.run().array()", "return self.lib.copied(self.handle)", GIVEN),
    ],
)
def test_owner_that_is_kept_or_copied_is_not_named(line: str, lends: str, give: str, tmp_path: Path) -> None:
    """By the loader, a list, the caller, or by the array itself."""
    verdict = verdict_of(report_of(tmp_path, TEMPORARY.format(line=line, lends=lends, give=give), 11, 14))
    assert "it is of the Scans" not in (verdict.summary or "")
    assert "comes too late" not in (verdict.advice or "")
