"""A tensor whose address alone native code was given: the variable that ended, and tensors that something holds."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import given_address as module
from pytracer.analyze.evidence.own_code.given_address import GivenAddress, given_address
from pytracer.analyze.evidence.own_code.own_libraries import OwnCall
from pytracer.decode.types.snapshot import CallSite, PythonFrame
from pytracer.report import job as r

ADD = """class Batcher:
    def add(self, clip):
        clip = clip.float()
        {between}
        self.size = self.lib.push(self.handle, clip.data_ptr(), clip.numel())
    def flush(self):
        self.lib.means(self.handle)
def main(batcher, clips):
    for clip in clips:
        batcher.add(clip)
    batcher.flush()
"""
HELPER = """def scale(x):
    return x / x.max()
def enqueue(frames):
    for frame in frames:
        scaled = scale(frame)
        address = scaled.data_ptr()
        lib.push(address, 4)
def main(frames):
    enqueue(frames)
    lib.means()
"""
PASSED = """class Ring:
    def push(self, samples):
        {first}
        self.dll.push(samples.data_ptr(), 4)
def main(ring, wave):
    ring.push(wave.float())
    ring.dll.means()
"""
TABLE = """class Index:
    def __init__(self):
        self.rows = torch.rand(9)
        self.dll.push(self.rows.data_ptr(), 9)
    def refresh(self):
        self.rows = self.rows + 1
    def clear(self):
        del self.rows
    def query(self):
        return self.dll.means()
"""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a program: lines that made and freed the memory, and the one that runs."""
    monkeypatch.setattr(module, "own_frames", lambda view: [r.NativeFrame(image="/home/me/libbatcher.so")])

    def judge(source: str, made: int, freed: int, runs: int, *, python: bool = True) -> GivenAddress | None:
        file = tmp_path / "train.py"
        file.write_text(source, encoding="utf-8")
        texts = enumerate(source.splitlines(), 1)
        line = next(number for number, text in texts if ".push(" in text and ("data_ptr" in text or "address" in text))
        call = OwnCall(r.PythonFrame(file=str(file), line=line), "", "push")
        monkeypatch.setattr(module, "own_libraries", lambda view: SimpleNamespace(calls=(call,)))
        made_at, freed_at = (CallSite(PythonFrame("f", str(file), number)) for number in (made, freed))
        frame = PythonFrame("means", str(file), runs)
        crash = SimpleNamespace(python_stack=(frame,) if python else (), python_threads=((7, (frame,)),), holders=())
        snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, pid=1, main_pthread=7)
        place = SimpleNamespace(storage=SimpleNamespace(allocated_by=made_at, freed_by=freed_at))
        view: Any = SimpleNamespace(place=place, crash=crash, process=SimpleNamespace(snapshot=snapshot))
        return given_address(view)

    return judge


def added(between: str = "pass") -> str:
    return ADD.replace("{between}", between)


def test_variable_that_ended_with_its_function(found: Any) -> None:
    """Freed by the line that called it."""
    item = found(added(), 3, 10, 7)
    assert item.summary == (
        "`clip` (line 3 in add()) was freed when add() returned, and line 5 had given push() its address alone"
    )
    assert item.advice.startswith(
        "Hold `clip` until line 7 (`self.lib.means(self.handle)`) has used it: `self.held.append(clip)` at line 5"
    )


def test_variable_that_the_next_round_sets_is_made_by_a_function(found: Any) -> None:
    """Its address goes through another variable."""
    item = found(HELPER, 2, 5, 10)
    assert item.what == "`scaled` (line 5 in enqueue())" and item.ended == "was freed when line 5 set it anew"
    assert "`held.append(scaled)` at line 7" in item.advice


def test_temporary_of_the_caller_ends_with_its_line(found: Any) -> None:
    """The parameter ended with the function."""
    item = found(PASSED.replace("{first}", "pass"), 6, 6, 7)
    assert item.what == "`wave.float()` (a temporary of line 6 in main())" and item.ended == "ended with that line"
    assert "`self.held.append(samples)` at line 4" in item.advice


def test_attribute_that_was_set_to_another_tensor(found: Any) -> None:
    """Native code is to be given the new address."""
    item = found(TABLE, 3, 6, 10)
    assert item.summary == (
        "`self.rows` (line 3) was freed when line 6 set another tensor, and line 4 had given push() its address alone"
    )
    assert item.advice.startswith("Give push() the address of the new tensor behind line 6")


def test_native_thread_has_no_line(found: Any) -> None:
    """The main thread's is not its."""
    assert "Hold `clip` until the native thread has used it" in found(added(), 3, 10, 11, python=False).advice


@pytest.mark.parametrize(
    ("source", "made", "freed", "runs"),
    [
        (added("self.held.append(clip)"), 3, 10, 7),
        (added("self.last = clip"), 3, 10, 7),
        (added("queue(clip)"), 3, 10, 7),
        (added(), 3, 11, 7),  # something else let go of it
        (added(), 9, 10, 7),  # another tensor
        (PASSED.replace("{first}", "self.held = samples"), 6, 6, 7),
        (PASSED.replace("{first}", "samples = samples.half()"), 6, 6, 7),
        (TABLE, 3, 8, 10),
    ],
    ids=["in a list", "an attribute", "passed on", "freed elsewhere", "made elsewhere", "kept", "a copy", "deleted"],
)
def test_nothing_is_said_of_what_something_else_may_have_held(
    source: str, made: int, freed: int, runs: int, found: Any
) -> None:
    """Nor of memory that another line made."""
    assert found(source, made, freed, runs) is None
