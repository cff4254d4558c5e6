"""Memory that was unmapped because the program closed its owner: the object, what was made of it, who used it later."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import closed_owner as module
from pytracer.decode.types.snapshot import PythonFrame, Unmapping

LIBRARY = "/usr/lib/python3.11/multiprocessing/shared_memory.py"
CLOSE, DEL = PythonFrame("SharedMemory.close", LIBRARY, 230), PythonFrame("SharedMemory.__del__", LIBRARY, 187)
LOADER = """def build(meta):
    shm = SharedMemory(name=meta["name"])
    series = np.ndarray(meta["shape"], buffer=shm.buf)
    mean = np.ndarray(meta["shape"], buffer=shm.buf).mean()
    shm.close()
    return series
def main(meta):
    series = build(meta)
    print(evaluate(series))
"""
ATTRIBUTE = """class Replay:
    def __init__(self, n):
        self.shm = SharedMemory(create=True, size=n)
        self.rows = torch.from_numpy(np.ndarray((n,), buffer=self.shm.buf))
    def close(self):
        self.shm.close()
def main(replay):
    for epoch in range(3):
        print(replay.sample())
        replay.close()
"""
WITH = """def main(path):
    with mmap.mmap(path, 0) as mapped:
        x = torch.frombuffer(mapped, dtype=torch.float32)
        head = torch.frombuffer(mapped, dtype=torch.float32)[:3].clone()
    print(x.mean(), head)
"""


def view_of(folder: Path, source: str, ends: list[tuple[str, int]], used: int, library: PythonFrame = CLOSE) -> Any:
    """A process whose munmap() was called below these lines, and that died at line `used` of main()."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = tuple(PythonFrame(name, str(file), line) for name, line in ends)
    unmapping = Unmapping(0x1000, 4096, 1, 1, 0, (library, *stack))
    died = (PythonFrame("main", str(file), used),)
    crash = SimpleNamespace(
        fault_addr=0x1000, mappings=(1,), unmapping=unmapping, images=(), python_stack=died, tid=1, threads=()
    )
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    place = SimpleNamespace(addr=0x1000, mapping=None)
    return SimpleNamespace(crash=crash, place=place, process=SimpleNamespace(snapshot=snapshot))


@pytest.fixture(autouse=True)
def _frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "program_frames", lambda view: view.crash.python_stack)
    monkeypatch.setattr(
        "pytracer.analyze.evidence.lifetime.where_made.program_frames", lambda view: view.crash.python_stack
    )


def test_local_object_that_is_closed_before_its_array_is_used(tmp_path: Path) -> None:
    found = module.closed_owner(view_of(tmp_path, LOADER, [("build", 5), ("main", 8)], 9))
    assert found is not None
    assert (found.by, found.still) == ("`shm.close()` at line 5 in build", "; `series` (line 3) is made of it")
    said = found.advice("the tensor")
    assert said.startswith('Keep `shm` (line 2: `shm = SharedMemory(name=meta["name"])`) open until line 9 (`print(')
    assert "move `shm.close()` (line 5 in build, which line 8 calls) behind that. Or copy `series` (line 3" in said


def test_attribute_that_a_method_closes(tmp_path: Path) -> None:
    found = module.closed_owner(view_of(tmp_path, ATTRIBUTE, [("Replay.close", 6), ("main", 10)], 9))
    assert found is not None
    assert found.still == "; `self.rows` (line 4) is made of it"
    assert found.advice("the tensor").startswith("Keep `self.shm` (line 3: ")
    assert "line 6 in Replay.close, which line 10 calls" in found.advice("the tensor")


def test_end_of_a_with(tmp_path: Path) -> None:
    found = module.closed_owner(view_of(tmp_path, WITH, [("main", 2)], 5))
    assert found is not None
    assert found.by == "the end of `with ... as mapped` at line 2 in main"
    assert found.still == "; `x` (line 3) is made of it"
    assert "has run for the last time, and end that `with` behind it" in found.advice("the tensor")


LINE2 = 'shm = SharedMemory(name=meta["name"])'


@pytest.mark.parametrize(
    ("old", "new", "is_known"),
    [
        ("def build(meta):", "def build(meta, shm=None):", True),
        (f"    {LINE2}", f"    if meta: {LINE2}", True),
        (f"build(meta):\n    {LINE2}", f"build(meta, shm=None):\n    if meta: {LINE2}", False),
        (f"    {LINE2}", f"    if meta: {LINE2}\n    else: shm = meta['shm']", False),
        (f"    {LINE2}", f"    {LINE2}\n    for shm in meta: pass", False),
        (f"    {LINE2}", f"    {LINE2}\n    shm = meta.shm or shm", False),
        (f"    {LINE2}", f"    {LINE2}\n    with meta as shm: pass", False),
        (f"    {LINE2}", f"    global shm; {LINE2}", False),
        (f"    {LINE2}", f"    shm = None\n    {LINE2}", True),  # nobody closes None
    ],
    ids=[
        "set in any case",
        "only if",
        "parameter",
        "subscript",
        "loop",
        "other value",
        "with",
        "global",
        "None before",
    ],
)
def test_line_that_made_it_is_named_where_no_other_binds_it(old: str, new: str, is_known: bool, tmp_path: Path) -> None:
    source = LOADER.replace(old, new)
    moved = source.count("\n") - LOADER.count("\n")
    found = module.closed_owner(view_of(tmp_path, source, [("build", 5 + moved), ("main", 8 + moved)], 9 + moved))
    assert found is not None and (found.made is not None) == is_known


@pytest.mark.parametrize("other", ["self.shm = pool['shm']", "replay.shm = spare"])
def test_attribute_that_is_set_elsewhere_may_be_another_object(other: str, tmp_path: Path) -> None:
    source = ATTRIBUTE
    if other.startswith("self"):
        source = source.replace("def main", f"    def swap(self, pool):\n        {other}\ndef main")
        lines = [("Replay.close", 6), ("main", 12)]
    else:
        source = source.replace("def main", f"def swap(replay, spare):\n    {other}\ndef main")
        lines = [("Replay.close", 6), ("main", 12)]
    found = module.closed_owner(view_of(tmp_path, source, lines, 11))
    assert found is not None and found.made is None


def test_attribute_that_is_emptied_after_it_was_closed(tmp_path: Path) -> None:
    source = ATTRIBUTE.replace("        self.shm.close()\n", "        self.shm.close()\n        self.shm = None\n")
    found = module.closed_owner(view_of(tmp_path, source, [("Replay.close", 6), ("main", 11)], 10))
    assert found is not None and found.made is not None


@pytest.mark.parametrize(
    ("old", "new", "library"),
    [
        ("shm.close()", "lib.close(handle)", CLOSE),
        ("shm.close()", "del shm", DEL),
        ("shm.close()", "one.close(), shm.close()", CLOSE),
    ],
    ids=["a function of a library", "collected", "two objects"],
)
def test_other_ends_are_not_said_to_be_of_an_object(old: str, new: str, library: PythonFrame, tmp_path: Path) -> None:
    source = LOADER.replace(old, new)
    assert module.closed_owner(view_of(tmp_path, source, [("build", 5), ("main", 8)], 9, library)) is None
