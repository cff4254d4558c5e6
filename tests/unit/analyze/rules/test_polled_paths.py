"""Ranks that slept and looked for files in a loop, until a time limit ended them: all of them, or one alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Process
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, in_native, parent, stopped
from tests.support.synth import Box, Frame
from tests.unit.analyze.rules.test_collectives import DONE, late
from tests.unit.analyze.rules.test_waited_objects import of

STAGE = """\
def wait(world):
    stage = os.path.join("/data", f"run_{0}")
    while len(os.listdir(stage)) < world:
        time.sleep(0.1)
wait(2)
"""


@pytest.mark.parametrize(("made", "own"), [("{np.random.randint(99)}", True), ("a", False)])
def test_ranks_that_slept_in_one_loop_are_one_finding(made: str, own: bool, run: Path) -> None:
    """Both, before the signal; with the line by which each has a path of its own, where there is one."""
    script = of(run, "import os, time\nimport numpy as np\n" + STAGE.format(made))
    boxes = [Box(pid=101 + rank, ppid=90, rank=rank).versions(torch="2.13.0") for rank in range(2)]
    stack: list[Frame] = [("wait", script, 6), ("<module>", script, 7)]
    report = in_native(run, *(stopped(box, stack) for box in boxes), native="pysleep")
    assert summary(report).startswith(
        "Ranks 0 and 1 slept at train.py:6 in wait, in the loop `while len(os.listdir(stage)) < world` (line 5). "
    )
    assert "At a time limit, SIGTERM ended them, sent by" in summary(report)
    assert ("Each looks at another path, as line 4 (`np.random.randint`) draws" in summary(report)) == own
    assert verdict(report) == ("hang", "likely" if own else "possible")
    assert advice(report).startswith("Make `stage` the same path on all ranks: draw it on rank 0") == own


def test_process_alone_has_no_path_that_is_another_one(run: Path) -> None:
    """The look-alike: whoever writes the file is not known, nor which path that takes."""
    script = of(run, "import os, time\nimport numpy as np\n" + STAGE.format("{np.random.randint(99)}"))
    report = in_native(run, stopped(parent(), [("wait", script, 6), ("<module>", script, 7)]), native="pysleep")
    assert "another path" not in summary(report)
    assert verdict(report) == ("hang", "possible")


ALONE = """\
def meet(rank):
    path = os.path.join("/data", {0})
    if rank == 0:
        open(path, "w").close()
    while not os.path.exists(path):
        time.sleep(0.1)
meet(1)
"""


@pytest.mark.parametrize(("name", "own"), [("f'{os.getpid()}.done'", True), ("'all.done'", False)])
def test_rank_that_looks_for_a_file_alone_while_the_others_wait_for_it(name: str, own: bool, run: Path) -> None:
    """missing-rank: the path is another one on the rank that writes it; the look-alike's is the same."""
    script = of(run, "import os, time\n" + ALONE.format(name))
    job, stack = late(), [("meet", script, 7), ("<module>", script, 8)]
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x1000)])
    loaded = job.job(run)
    rank = next(item for item in loaded.processes if item.rank == 1)
    ending = rank.snapshot.ending
    assert ending is not None
    frames = tuple(replace(frame, function="time_sleep") for frame in ending.native_stack)
    snapshot = replace(rank.snapshot, ending=replace(ending, native_stack=frames))
    processes = tuple(replace(rank, snapshot=snapshot) if item is rank else item for item in loaded.processes)
    report = build_report(replace(loaded, processes=processes))
    has = "; each rank has a path of its own, as line 3 (`os.getpid`) gives each process another one."
    assert verdict(report)[0] == "missing-rank"
    assert "in the loop `while not os.path.exists(path)` (line 6)" in summary(report)
    assert summary(report).endswith(has) == own
    assert ("make `path` the same path on all ranks: make it on rank 0" in advice(report)) == own
    assert ("Compare the path with that of whoever writes it" in advice(report)) == (not own)


BEHIND = """\
class Vocabulary:
    def build(self):
        dist.barrier()
        torch.save(WORDS, self.path)
    def wait(self):
        while not os.path.exists(self.path):
            time.sleep(0.1)
    def load(self, rank):
        self.build() if rank != 1 else self.wait()
"""


@pytest.mark.parametrize("too_late", [True, False])
def test_file_that_a_waiting_rank_writes_behind_its_collective_is_told(too_late: bool, run: Path) -> None:
    """missing-rank; the look-alike had written it before."""
    lines = ["        dist.barrier()\n", "        torch.save(WORDS, self.path)\n"]
    script = of(run, BEHIND if too_late else BEHIND.replace("".join(lines), "".join(lines[::-1])))
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("barrier", state="started"), first=2)
    builds: list[Frame] = [("Vocabulary.build", script, 3 if too_late else 4), ("Vocabulary.load", script, 9)]
    waits: list[Frame] = [("Vocabulary.wait", script, 7), ("Vocabulary.load", script, 9)]
    in_torch: Frame = ("barrier", f"{s.TORCH}/distributed/distributed_c10d.py", 4621)
    job.boxes[0].at(7000).exception("RuntimeError", TIME_OUT, [in_torch, *builds]).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    job.boxes[1].at(7900).signal_seen(15, 99)
    job.boxes[1].crash(0, code=0, state=EXIT, python=waits, native=[(s.PYTHON, 0x1000)])
    loaded = job.job(run)
    ranks = [item for item in loaded.processes if item.rank == 1]
    processes = tuple(_asleep(item) if item in ranks else item for item in loaded.processes)
    report = build_report(replace(loaded, processes=processes))
    words = "rank 0 writes that file at line 4 (`torch.save(WORDS, self.path)`) only, behind the collective of line 3"
    assert "in the loop `while not os.path.exists(self.path)` (line 6)" in summary(report)
    assert (words in summary(report)) == too_late
    assert ("move line 4 (`torch.save(WORDS, self.path)`) above it" in advice(report)) == too_late


def _asleep(process: Process) -> Process:
    ending = process.snapshot.ending
    assert ending is not None
    frames = tuple(replace(frame, function="time_sleep") for frame in ending.native_stack)
    return replace(process, snapshot=replace(process.snapshot, ending=replace(ending, native_stack=frames)))
