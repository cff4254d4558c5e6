"""A rank that was killed between two collectives of one function: its lines, what runs there; and look-alikes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.render.text import render_text
from tests.support import scenarios as s
from tests.support.collectives import CLOSED, Ranks
from tests.support.scenarios import TORCH
from tests.support.synth import Box, By

PROGRAM = """\
import numpy as np
def table_of(parts):
    rows = np.concatenate([part.numpy() for part in parts])
    return rows.astype(np.float64)
def work(rank, parts, log, done):
    {before}
    {first}
    {between}
    {end}
work(0, [], None, False)
"""
FIRST, END = "dist.gather(parts[0])", "dist.barrier()"
ROUND = "for _ in parts:\n        dist.gather(parts[0])\n        {}\n        dist.barrier()"
CAUGHT = (
    "try:\n        dist.gather(parts[0])\n        save(parts)\n        dist.barrier()\n    except OSError:\n        {}"
)
BELOW = "if rank == {}:\n        log.info('saves')\n        table = table_of(parts)\n        np.save('t.npy', table)"


def found_in(
    run: Path,
    between: str,
    *,
    before: str = "pass",
    first: str = FIRST,
    end: str = END,
    last: str = "completed",
    ended: str = "killed",
    same: bool = True,
    launcher: dict[str, Any] | None = None,
) -> str:
    """The report where rank 0 was killed behind `first`, and rank 1 stood in `end`. `same`: it came from there, too."""
    source = PROGRAM.format(between=between, before=before, first=first, end=end)
    compile(source, "program.py", "exec")
    script = str(s.program_in(run, source))
    lines = source.splitlines()
    at = [next(n for n, text in enumerate(lines, 1) if words in text) for words in ("dist.gather", "dist.barrier")]
    job = Ranks(2)

    def by(box: Box, line: int) -> By:
        return box.site(("gather", f"{TORCH}/distributed/distributed_c10d.py", 4660), ("work", script, line))

    for number, box in enumerate(job.boxes):
        group = job.groups[number]["0"]
        line = at[0] if number == 0 or same else 6
        state = last if number == 0 else "completed"
        box.collective("gather_", group=group, by=by(box, line), sequence_nr=1, root=0, state=state)
    late = job.boxes[1]
    late.collective("barrier", group=job.groups[1]["0"], by=by(late, at[1]), sequence_nr=2, state="failed")
    job.raised(1, CLOSED, at=7000)
    job.endings[0] = {"signal": 9} if ended == "killed" else {"exit_code": 1}
    if ended == "raised":
        job.raised(0, at=6000)
    loaded = job.job(run)
    if launcher is not None:
        children = [(box.pid, job.endings[number]) for number, box in enumerate(job.boxes)]
        loaded = s.load(run / "again", s.agent(*children, at=8000), *job.boxes, launcher=launcher)
    return " ".join(render_text(build_report(loaded)).split())


def test_lines_between_its_last_collective_and_that_of_another_rank_are_told(run: Path) -> None:
    """With what runs there on this rank, and that the line itself is not known; of its memory nothing is said."""
    text = found_in(run, BELOW.format(0))
    assert "it was between lines 7 and 12 of work (program.py)" in text
    assert "where it runs `table = table_of(parts)` (line 10) and `np.save('t.npy', table)` (line 11)" in text
    assert "the function always comes to the other unless something raises, so it was between lines" in text
    assert "which of these lines it executed, and whether an exception that was caught had led it out of them" in text
    assert "new arrays" not in text


def test_lines_are_told_of_an_oom_kill_with_what_makes_arrays_there(run: Path) -> None:
    """The function of the program that is called there is read as well."""
    line = {"text": "Out of memory: Killed process 101 (python) total-vm:1kB, anon-rss:2kB", "log_us": 1}
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5, "psi_memory": {"some_total": 0.0}}
    log = {"kernel_log": {"readable": True, "lines": [line]}, "first_pid_namespace": True}
    witness = {"before": counters, "after": counters, "ended": True, "killers": [], **log}
    text = found_in(run, BELOW.format(0), launcher={"witness": witness})
    assert "was ended by the kernel's OOM killer; it was between lines 7 and 12 of work (program.py)" in text
    assert "Look first at `table = table_of(parts)` (line 10): table_of() makes new arrays at lines 3 and 4" in text


def test_what_another_rank_runs_there_is_left_out(run: Path) -> None:
    text = found_in(run, BELOW.format(1))
    assert "it was between lines 7 and 12 of work (program.py)" in text
    assert "where it runs" not in text


@pytest.mark.parametrize(
    ("between", "changed"),
    [
        ("for part in parts:\n        if part is None: continue\n        save(part)", {}),
        ("save(parts)", {"end": "with timer():\n        dist.barrier()"}),
        ("save(parts)", {"first": "if not done:\n        dist.gather(parts[0])"}),
        ("pass", {"first": ROUND.format("save(parts)"), "end": "pass"}),
    ],
)
def test_function_that_always_comes_to_the_second_call(between: str, changed: dict[str, str], run: Path) -> None:
    """A loop of its own in between, a `with` around the second call, an `if` around the first one, a round of both."""
    text = found_in(run, between, **changed)  # type: ignore[arg-type]
    assert "it was between lines" in text
    assert "`save(part" in text


@pytest.mark.parametrize(
    ("between", "changed"),
    [
        ("if done: return", {}),
        ("if done: raise ValueError('bad')", {}),
        ("yield parts", {}),
        ("save(parts)", {"end": "if done:\n        dist.barrier()"}),
        ("save(parts)", {"end": "done and dist.barrier()"}),
        ("save(parts)", {"end": "for part in parts:\n        dist.barrier()"}),
        ("save(parts)", {"first": "while parts:\n        dist.gather(parts[0])"}),
        ("pass", {"first": ROUND.format("if done: break"), "end": "pass"}),
        ("pass", {"first": ROUND.format("if done: continue"), "end": "pass"}),
        ("save(parts)\n    def inner():", {"end": "    dist.barrier()"}),
        ("save(parts)", {"first": CAUGHT.format("dump()"), "end": "pass"}),
        ("save(parts)", {"last": "started"}),
        ("save(parts)", {"same": False}),
        ("save(parts)", {"ended": "raised"}),
    ],
)
def test_rank_that_may_be_elsewhere_is_not_placed(between: str, changed: dict[str, str], run: Path) -> None:
    """A way out in between, a second call that need not come, a loop around one of them, another way, a stack."""
    assert "between lines" not in found_in(run, between, **changed)  # type: ignore[arg-type]
