"""Arrays that ended while a structure, an array of addresses or an attribute had their address; look-alikes are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, image, memory, summary, verdict

BLOCK = 0x7F1A_44CB_D010  # where malloc() puts a large block
HEAP = 0x5555_1000_0000
OWN = "/home/me/job/libscan.so"
STACK = [(OWN, "scan"), ("/usr/lib/libffi.so.8", "ffi_call"), ("/usr/lib/_ctypes.cpython-311.so", "_ctypes_callproc")]
MAPS = [PROGRAM, (HEAP, HEAP + 0x1000, "rw-p", 0, "[heap]"), (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")]
JOB = """import ctypes, numpy as np
lib = ctypes.CDLL("./libscan.so")
class Job(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int), ("rows", ctypes.c_void_p), ("marks", ctypes.c_void_p)]
class Scanner:
    def __init__(self, n):
        self.marks = np.zeros(n)
    def prepare(self, data):
        rows = np.array(data, dtype="f4")
        job = Job(len(data), {given}, self.marks.ctypes.data)
        {then}
        return job
    def run(self, data):
        job = self.prepare(data)
        lib.scan(ctypes.byref(job), len(data))
Scanner(9).run(d)
"""


def crashed(run: Path, source: str, line: int, *words: int, addr: int = BLOCK, value: int | None = None) -> Report:
    """Died in the library that this line called; `words`: what rdi points at. `value`: of `self.address`."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    frame = PythonFrame("Scanner.run", str(file), line)
    numbers = () if value is None else (HeldNumber("self.address", value, frame, 0),)
    return died(
        run, signal=11, code=1, addr=addr, python=[("Scanner.run", str(file), line)], stack_of=STACK, numbers=numbers,
        images=(image(OWN),), mappings=MAPS, registers={"rdi": HEAP}, memory=(memory(HEAP, *words, register="rdi"),),
    )  # fmt: skip


def job_of(run: Path, given: str = "rows.ctypes.data", then: str = "pass", *words: int, addr: int = BLOCK) -> Report:
    return crashed(run, JOB.format(given=given, then=then), 15, *(words or (9, BLOCK, HEAP + 64)), addr=addr)


def test_field_of_a_structure_whose_array_ended_with_its_function(run: Path) -> None:
    report = job_of(run)
    assert verdict(report) == ("use-after-free", "certain")
    assert (
        ": `rows` of Job had only the address, taken at line 10, of `rows` of Scanner.prepare() (line 9: "
        "`rows = np.array(data, dtype='f4')`), which was freed when prepare() returned."
    ) in summary(report)
    assert advice(report).startswith("Keep `rows` until native code has returned: return it with the structure")


def test_field_that_is_set_later_and_an_access_further_on(run: Path) -> None:
    report = job_of(run, "None", "job.rows = rows.ctypes.data", addr=BLOCK + 0x5000)
    assert verdict(report) == ("use-after-free", "certain")
    assert "`rows` of Job had only the address, taken at line 11, of `rows`" in summary(report)


def test_field_that_memory_does_not_show_is_likely(run: Path) -> None:
    report = job_of(run, "rows.ctypes.data", "pass", 1)
    assert verdict(report) == ("use-after-free", "likely")
    assert "`rows` of Job likely had only the address" in summary(report)


@pytest.mark.parametrize(
    ("given", "then", "words"),
    [
        ("rows.ctypes.data", "job.held = rows", ()),
        ("rows.ctypes.data", "self.rows = rows", ()),
        ("rows.ctypes.data", "HELD.append(rows)", ()),
        ("lib.place(rows.ctypes.data)", "pass", ()),
        ("self.rows.ctypes.data", "pass", ()),
        ("ctypes.cast(rows, ctypes.c_void_p)", "pass", ()),
        ("data.ctypes.data", "pass", ()),
        ("rows.ctypes.data", "pass", (9, HEAP + 64, BLOCK)),
    ],
    ids=["attribute of the structure", "of self", "in a list", "other memory", "of the object", "held by ctypes"]
    + ["the caller's", "another field leads there"],
)
def test_arrays_that_may_be_alive(given: str, then: str, words: tuple[int, ...], run: Path) -> None:
    """Look-alikes."""
    report = job_of(run, given, then, *words)
    assert verdict(report)[0] == "wild-pointer"
    assert "only the address" not in summary(report)


def test_address_that_is_no_start_and_was_not_found(run: Path) -> None:
    """A look-alike: an index may have led there."""
    report = job_of(run, "rows.ctypes.data", "pass", 1, addr=BLOCK + 0x238)
    assert "only the address" not in summary(report)


LIST = """import ctypes, numpy as np
lib = ctypes.CDLL("./libscan.so")
class Scanner:
    def addresses(self, parts):
        made = (ctypes.c_void_p * 2)()
        for i, part in enumerate(parts):
            rows = part.astype("f4")
            made[i] = rows.ctypes.data
        return made
    def run(self, parts):
        made = self.addresses(parts)
        lib.scan(made, 2)
Scanner().run(d)
"""


def test_element_of_an_array_of_addresses(run: Path) -> None:
    report = crashed(run, LIST, 12, BLOCK)
    assert verdict(report) == ("use-after-free", "likely")
    assert "the address, taken at line 8, of `rows` of Scanner.addresses() (line 7" in summary(report)
    kept = LIST.replace("made[i]", "self.held.append(rows); made[i]")
    assert "only the address" not in summary(crashed(run, kept, 12, BLOCK))


NUMBER = """import ctypes, numpy as np
lib = ctypes.CDLL("./libscan.so")
class Scanner:
    def __init__(self, data):
        rows = np.array(data, dtype="f4")
        self.address = rows.ctypes.data
    def run(self):
        lib.scan(ctypes.c_void_p(self.address), 2)
Scanner(d).run()
"""


@pytest.mark.parametrize(("value", "sure"), [(BLOCK, "certain"), (None, "likely")])
def test_number_that_an_attribute_keeps(value: int | None, sure: str, run: Path) -> None:
    report = crashed(run, NUMBER, 8, value=value)
    assert verdict(report) == ("use-after-free", sure)
    assert "had only the address, taken at line 6, of `rows` of Scanner.__init__() (line 5" in summary(report)
    kept = NUMBER.replace("rows = np", "rows = self.rows = np")
    assert "only the address" not in summary(crashed(run, kept, 8, value=value))


def test_number_that_another_function_sets_from_outside(run: Path) -> None:
    other = NUMBER.replace("Scanner(d).run()", "s = Scanner(d); s.address = other.ctypes.data; s.run()")
    assert "only the address" not in summary(crashed(run, other, 8, value=BLOCK))


HELPER = """import ctypes, numpy as np
lib = ctypes.CDLL("./libscan.so")
class Job(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int), ("rows", ctypes.POINTER(ctypes.c_float))]
def new_job(n):
    blank = np.zeros(n, dtype="f4")
    return Job(n, blank.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
def point_at(job, data):
    {line}
class Scanner:
    def run(self, data):
        job = new_job(len(data))
        point_at(job, data)
        lib.scan(ctypes.byref(job), len(data))
Scanner().run(d)
"""


def test_field_that_a_helper_sets_anew(run: Path) -> None:
    """A look-alike; and a pointer is no number."""
    report = crashed(run, HELPER.format(line="job.count = len(data)"), 14, 9, BLOCK)
    assert "`rows` of Job had only the address, taken at line 7, of `blank`" in summary(report)
    assert "is a pointer, of which only the number is taken" in advice(report)
    other = HELPER.format(line="job.rows = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))")
    assert "only the address" not in summary(crashed(run, other, 14, 9, BLOCK))


def test_storages_are_another_rules(run: Path) -> None:
    """What Python called is no C of the program's: nothing of an array is said."""
    file = run / "train.py"
    file.write_text(NUMBER, encoding="utf-8")
    os.utime(file, (0, 0))
    report = died(
        run, signal=11, code=1, addr=BLOCK, python=[("Scanner.run", str(file), 8)], mappings=MAPS,
        stack_of=[(s.TORCH_CPU, "at::native::f()")],
    )  # fmt: skip
    assert "only the address" not in summary(report)
