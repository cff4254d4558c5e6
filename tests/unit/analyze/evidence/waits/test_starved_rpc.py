"""Workers of torch.distributed.rpc whose threads all wait for calls that no thread is left to run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import HeldValue
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, with_ending
from tests.support.synth import Box, Frame

RPC = f"{s.TORCH}/distributed/rpc"
ASKS: list[Frame] = [("rpc_sync", f"{RPC}/api.py", 842), ("_invoke_rpc", f"{RPC}/rref_proxy.py", 45)]
TO_OTHER: list[Frame] = [("rpc_sync", f"{RPC}/api.py", 842)]
FUTURE: list[Frame] = [("Future.wait", f"{s.TORCH}/futures/__init__.py", 80)]
SERVED: list[Frame] = [("_local_invoke", f"{RPC}/rref_proxy.py", 12), ("_run_function", f"{RPC}/internal.py", 209)]
SHUTDOWN: list[Frame] = [
    ("Event.wait", "/usr/lib/python3.11/threading.py", 629),
    ("_all_gather", f"{RPC}/api.py", 257),
    ("shutdown", f"{RPC}/api.py", 382),
]
PROGRAM = """import torch.distributed.rpc as rpc
class Store:
    def look(self, key):
        return {look}
    def work(self, key):
        return self.table[key]
def fetch(store, key):
    return store.rpc_sync().look(key)
def main(rank, args):
    options = rpc.TensorPipeRpcBackendOptions({size})
    rpc.init_rpc(str(rank), rank=rank, world_size={world}, rpc_backend_options=options)
    rpc.shutdown()
"""
LOOK = "self.shard.rpc_sync().find(key)"


class Job:
    """Worker 101 runs `look`, the others `fetch`, which asks it. By default 101 has as many threads as it may have."""

    def __init__(self, run: Path, *, look: str = LOOK, size: str = "num_worker_threads=2", world: str = "2") -> None:
        self.script, self.run = run / "train.py", run
        self.script.write_text(PROGRAM.format(look=look, size=size, world=world))
        os.utime(self.script, (0, 0))

    def look(self, inner: Sequence[Frame] = ASKS, line: int = 4) -> list[Frame]:
        return [*inner, ("Store.look", str(self.script), line), *SERVED]

    def fetch(self, inner: Sequence[Frame] = ASKS) -> list[Frame]:
        return [*inner, ("fetch", str(self.script), 8), *SERVED]

    def ended(self, *workers: Sequence[Sequence[Frame]], values: Sequence[HeldValue] = ()) -> Report:
        """Each worker with the stacks of its RPC threads."""
        boxes = []
        for number, stacks in enumerate(workers):
            box = Box(pid=101 + number, ppid=90).versions(torch="2.13.0").at(60_000).signal_seen(15, 90, TIMEOUT)
            others = {700 + n: frames for n, frames in enumerate(stacks)}
            main = [*SHUTDOWN, ("main", str(self.script), 12)]
            boxes.append(box.crash(0, code=0, state=EXIT, python=main, native=[(s.LIBC, 0x10)], other_python=others))
        root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).exit(124)
        for number in range(len(workers)):
            root.wait(101 + number, signal=15)
        job = s.load(self.run, root, *boxes)
        changed = (
            with_ending(item, values=tuple(values)) if item.snapshot.pid > 100 else item for item in job.processes
        )
        return build_report(replace(job, processes=tuple(changed)))


def test_worker_whose_threads_all_wait_for_calls_to_itself(run: Path) -> None:
    """Which threads, the setting, the line and its call; where the other worker waits; the ways out."""
    job = Job(run)
    report = job.ended([job.look(), job.look()], [job.fetch()])
    assert verdict(report) == ("hang", "likely")
    assert report.verdict is not None and report.verdict.pid == 101
    assert (
        "waited for itself: both its RPC threads (num_worker_threads=2, line 10) were at train.py:4 in Store.look, in "
        f"`{LOOK}`, a call that no worker ran; only this worker had no thread left for it" in summary(report)
    )
    assert "in a call, waiting for another one at train.py:8 in fetch" in evidence(report)
    assert "Let look() not wait: use `self.shard.local_value()` where `self.shard.is_owner()`" in advice(report)
    assert "more threads than such calls may run at once: `num_worker_threads` (line 10), now 2" in advice(report)


@pytest.mark.parametrize(
    ("threads", "size"), [(1, "num_worker_threads=2"), (2, ""), (2, "num_worker_threads=args.threads"), (2, "**more)")]
)
def test_worker_with_a_thread_left_waits_for_something_else(threads: int, size: str, run: Path) -> None:
    """One of two, two of torch's 16, of a number that is not known; a file that cannot be read."""
    job = Job(run, size=size)
    report = job.ended([job.look()] * threads, [job.fetch()])
    assert "RPC thread" not in summary(report)


def test_default_of_torch_is_sixteen_threads(run: Path) -> None:
    """Without options; the setting has no line."""
    job = Job(run, size="")
    report = job.ended([job.look()] * 16, [job.fetch()])
    assert "all its 16 RPC threads (num_worker_threads=16, torch's default)" in summary(report)
    assert "`num_worker_threads`, now 16" in advice(report)


@pytest.mark.parametrize(("recorded", "known"), [(["2"], True), (["2", "4"], False), (["3"], False)])
def test_number_of_threads_by_a_recorded_variable(recorded: Sequence[str], known: bool, run: Path) -> None:
    """Where all frames that have it agree; three threads of which two wait leave one."""
    job = Job(run, size="num_worker_threads=args.threads")
    values = [HeldValue("args.threads", text, depth) for depth, text in enumerate(recorded)]
    report = job.ended([job.look(), job.look()], [job.fetch()], values=values)
    assert ("both its RPC threads (num_worker_threads=2, line 10)" in summary(report)) == known


def test_call_that_is_run_elsewhere_is_only_slow(run: Path) -> None:
    """The look-alike: the other worker computes what both wait for; or one of the two works."""
    job = Job(run)
    works: list[Frame] = [("Store.work", str(job.script), 6), *SERVED]
    assert "RPC thread" not in summary(job.ended([job.look(), job.look()], [works]))
    assert "RPC thread" not in summary(job.ended([job.look(), works], [job.fetch()]))


def test_workers_that_wait_for_each_other_are_told(run: Path) -> None:
    """Both are full: each may wait for the other one."""
    job = Job(run, size="num_worker_threads=1")
    report = job.ended([job.look()], [job.fetch()])
    assert "got no further: its only RPC thread (num_worker_threads=1, line 10) was at train.py:4" in summary(report)
    assert "process 102 (train.py) had no thread left, either" in summary(report)


@pytest.mark.parametrize(("world", "sure"), [("2", True), ("size()", False), ("4", False)])
def test_worker_that_is_not_recorded_may_run_the_call(world: str, sure: bool, run: Path) -> None:
    """init_rpc() was told of more workers than have left stacks, or of a number that is not known."""
    job = Job(run, world=world)
    report = job.ended([job.look(), job.look()], [job.fetch()])
    assert verdict(report) == ("hang", "likely" if sure else "possible")
    assert ("that no worker ran" if sure else "that no recorded worker ran") in summary(report)


@pytest.mark.parametrize(
    ("look", "inner", "confidence"),
    [
        ("rpc.rpc_sync(owner, find, args=(key,))", TO_OTHER, "likely"),
        ("self.shard.to_here()", [], "likely"),
        ("rpc.rpc_async(owner, find).wait()", FUTURE, "likely"),
        ("self.ready[key].wait()", FUTURE, "possible"),  # of a Future that something else may complete
        ("self.find(key)", [], None),
    ],
)
def test_other_ways_to_wait_for_a_call(look: str, inner: Sequence[Frame], confidence: str | None, run: Path) -> None:
    """The look-alike works at its line."""
    job = Job(run, look=look)
    report = job.ended([job.look(inner), job.look(inner)], [job.fetch()])
    assert ("both its RPC threads" in summary(report)) == (confidence is not None)
    assert confidence is None or verdict(report) == ("hang", confidence)
    assert "local_value" not in advice(report) or "self.shard" in look


def test_threads_at_several_lines_are_counted(run: Path) -> None:
    """The line of most of them."""
    job = Job(run, size="num_worker_threads=3")
    report = job.ended([job.look(), job.look(line=5), job.look()], [job.fetch()])
    assert "were waiting for calls, 2 of them at train.py:4 in Store.look" in summary(report)
