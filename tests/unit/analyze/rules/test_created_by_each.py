"""A line that creates the mapped file in each rank truncates it for the others; one of a rank alone does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box, Frame

START = 0x7F00_0000_0000
STORE = """\
class Store:
    def __init__(self, folder, name, rows):
        self.path = os.path.join(folder, name + ".f32")
        self.data = np.memmap(self.path, dtype="f4", mode="w+", shape=(rows, 8))
    def write(self, at, values):
        self.data[at] = values
def preview(name, values):
    np.save(os.path.join("/data", name + "_preview.npy"), values)
def embed(shard, rank):
    if rank == 0:
        preview(shard.name, shard.values)
    store = Store("/data", shard.name, len(shard.rows))
    for at in range(10):
        store.write(at, encode(at))
class Shard:
    def __init__(self, name, rank):
        self.name, self.rank = name, rank
for name in ("a", "features"):
    embed(Shard(name, rank), rank)
"""
SPAWN = "def run(i, shard):\n    embed(shard, i)\nmp.spawn(run, args=(Shard(),))\n"
TRUNCATES = 'line 4 (`self.data = np.memmap(self.path, dtype="f4", mode="w+", s...`) truncates it in each rank'
IN_WRITE = [("Store.write", 6), ("embed", 14), ("<module>", 19)]
IN_LOOP = [("embed", 14), ("<module>", 19)]


def reported(
    run: Path,
    source: str = STORE,
    at: list[tuple[str, int]] = IN_WRITE,
    other: list[tuple[str, int]] | None = IN_LOOP,
    path: str = "/data/features.f32",
) -> Report:
    """Rank 1 dies; `other`: where rank 0 was at its end, None of a job without it."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded processes began
    own, their = ([(function, str(file), line) for function, line in way] for way in (at, other or []))
    boxes = []
    if other is not None:
        stack: list[Frame] = [("linear", f"{s.TORCH}/nn/functional.py", 9), *their]
        box = Box(pid=102, ppid=100, rank=0, world_size=2).at(700)
        boxes = [box.exception("RuntimeError", "Connection closed by peer", stack).exit(1)]
    report = died(
        run, *boxes, box=Box(pid=101, ppid=100, rank=1, world_size=2),
        signal=7, code=2, addr=START + 8200, file_nbytes=4100, file_room=1 << 30, file_system=0xEF53,
        python=own, stack_of=[(s.TORCH_CPU, "at::native::f()")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "rw-s", 0, path)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return report


def test_line_that_maps_and_creates_the_file_in_each_rank_is_named(run: Path) -> None:
    """Not np.save() of another name in the same folder; rank 0 was behind that line, in the same function."""
    report = reported(run)
    assert summary(report).endswith(f"; {TRUNCATES} that runs it, and rank 0 had run it, too.")
    assert advice(report).startswith("Line 4 (")
    assert "Create it once with its full size (on rank 0, then dist.barrier()), and open it with mode" in advice(report)
    assert "preview" not in advice(report)


def test_size_by_the_rank_is_no_branch(run: Path) -> None:
    """Each rank creates it with a size of its own: so it is cut."""
    source = STORE.replace("len(shard.rows))", "9 if rank == 0 else 3)")
    assert "and rank 0 had run it, too." in summary(reported(run, source))


def test_rank_that_was_elsewhere_is_not_said_to_have_run_it(run: Path) -> None:
    """It may have; that is not known."""
    report = reported(run, other=[("preview", 8), ("embed", 11), ("<module>", 19)])
    assert summary(report).endswith(f"; {TRUNCATES} that runs it.")


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (STORE, None),
        (STORE.replace('name + ".f32"', 'name + ".bin"'), IN_LOOP),
        (STORE.replace('"w+"', '"r+"'), IN_LOOP),
        (STORE.replace("    store = Store", "    if rank == 0: store = Store"), IN_LOOP),
        (STORE.replace("Shard(name, rank)", 'Shard(f"features{rank}", rank)'), IN_LOOP),
        (STORE.replace('Store("/data",', 'Store(f"/data/{rank}",'), IN_LOOP),
        (STORE.replace('Store("/data",', "Store(folder_of(rank),"), IN_LOOP),
        (
            STORE.replace("(shard, rank):", "(shard, i):").replace('Store("/data",', 'Store(f"/data/{i}",') + SPAWN,
            IN_LOOP,
        ),
        (STORE.replace('Store("/data",', "Store(tempfile.mkdtemp(),"), IN_LOOP),
        (STORE.replace("folder, name +", 'folder, f"{os.getpid()}" + name +'), IN_LOOP),
    ],
    ids=[
        "one process",
        "another file",
        "r+",
        "rank 0 alone",
        "name",
        "folder",
        "folder by a call",
        "spawn's number",
        "temporary",
        "pid",
    ],
)
def test_line_of_one_rank_or_of_a_file_of_its_own_is_not_blamed(
    source: str, other: list[tuple[str, int]] | None, run: Path
) -> None:
    """The look-alikes."""
    report = reported(run, source, other=other)
    assert "each rank" not in summary(report) + advice(report)


OPENED = """\
def scores(path, items):
    with open(path, "wb") as out:
        out.truncate(items * 4)
    values = torch.from_file(path, shared=True, size=items)
    values[0] = 1
scores("/data/features.f32", 3)
"""


@pytest.mark.parametrize(
    ("making", "says"),
    [
        ('with open(path, "wb") as out:', 'and open it without truncating it ("r+b") on all ranks'),
        ("torch.save(x, path); out = Cut()\n    if out:", "Write it on one rank alone"),
    ],
    ids=["opens", "saves"],
)
def test_file_that_another_line_of_each_rank_creates(making: str, says: str, run: Path) -> None:
    """Opened with "wb", or saved, and then mapped by each rank."""
    source = OPENED.replace('with open(path, "wb") as out:', making)
    last = source.count("\n")
    ways = [("scores", last - 1), ("<module>", last)]
    report = reported(run, source, ways, ways)
    assert "line 2 (" in summary(report) and "and rank 0 had run it, too" in summary(report)
    assert says in advice(report)


def test_another_line_that_writes_the_file_comes_first(run: Path) -> None:
    """Each rank creates it alike, and one rank rewrites it later."""
    source = STORE + 'if rank == 0:\n    open("/data/features.f32", "wb")\n'
    assert advice(reported(run, source)).startswith("Look at line 21 (")
