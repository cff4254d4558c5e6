"""served-lock: a rank waits in a collective inside of a lock that a remote call of the missing rank needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.scenarios import LIBC, PYTHON, TORCH, program_in

PROGRAM = """\
import threading, torch.distributed as dist, torch.distributed.rpc as rpc
guard, other = threading.Lock(), threading.Lock()
def pull():
    with {0}:
        return weights()
def checkpoint():
    with {1}:
        dist.barrier()
def work():
    return rpc.rpc_sync("server", pull)
"""
RPC = f"{TORCH}/distributed/rpc"
SERVES = ("_run_function", f"{RPC}/internal.py", 209)
ASKS = ("rpc_sync", f"{RPC}/api.py", 842)
IN_BARRIER = ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 5356)


def reported(
    run: Path,
    *,
    wanted: str = "guard",
    held: str = "guard",
    asks: bool = True,
    serves: bool = True,
    inside: bool = False,
) -> Report:
    """Rank 0 is in a barrier below `with`, one of its threads at `with` in pull(); rank 1 waits for a remote call."""
    program = str(program_in(run, PROGRAM.format(wanted, held)))
    job = Ranks(2)
    job.everybody(call())
    job.calls(0, call(state="started", name="gloo:barrier"), first=2)
    server, worker = job.boxes
    server.thread(server.pid + 7, "pt_thread_pool")
    took = ("pull", program, 5 if inside else 4)
    others = {server.threads[-1].pthread: [took, SERVES] if serves else [took]}
    of_server = [IN_BARRIER, ("checkpoint", program, 8), ("main", program, 10)]
    of_worker = [*([ASKS] if asks else []), ("work", program, 10), ("main", program, 10)]
    native = [(LIBC, 0x10), (PYTHON, 0x20)]
    server.at(60_000).crash(signal=15, code=0, sender_pid=100, python=of_server, native=native, other_python=others)
    worker.at(60_000).crash(signal=15, code=0, sender_pid=100, python=of_worker, native=native)
    job.terminated(0, 1)
    return build_report(job.job(run, ended_at=60_010))


def test_both_sides_of_the_circle_are_told(run: Path) -> None:
    """The collective inside of the lock, and the remote call that waits for it: a hang, and no late rank."""
    report = reported(run)
    assert verdict(report) == ("hang", "likely")
    said = summary(report)
    assert said.startswith("Ranks 0 and 1 wait for each other: rank 0 waited for rank 1 at program.py:8 in checkpoint")
    assert "inside of `with guard` (line 7)" in said
    assert "rank 1 waited at program.py:10 in work for a remote call" in said
    assert "whose thread on rank 0 waited for that lock at program.py:4 in pull" in said
    assert advice(report).startswith("Move the collective of line 8 out of `with guard` (line 7)")
    assert "takes `guard`" in evidence(report)
    assert "collective-missing-rank" not in {item.id for item in report.findings or ()}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"wanted": "other"}, id="another lock"),
        pytest.param({"asks": False}, id="no remote call"),
        pytest.param({"serves": False}, id="a thread of its own"),
        pytest.param({"inside": True}, id="it has the lock"),
    ],
)
def test_a_rank_that_is_late_for_something_else_stays_late(how: dict[str, str | bool], run: Path) -> None:
    """Each of the three sides is needed."""
    report = reported(run, **how)  # type: ignore[arg-type]
    assert "served-lock" not in {item.id for item in report.findings or ()}
    assert verdict(report)[0] == "missing-rank"
