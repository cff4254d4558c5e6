"""The stream of each record: of autograd nodes, ranges, operators, collectives."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pytracer.decode.types.records import Node
from tests.cuda.jobs import finding, line_of, only_victim, program
from tests.support.records import data_of

pytestmark = pytest.mark.fake_cuda


@pytest.mark.parametrize("level", ["default", "ops"])
def test_records_carry_the_current_stream_of_their_thread(run: Path, level: str) -> None:
    """Nodes run where their forward pass did; a forked child, which has no CUDA, records without."""
    done = program("stream_records", run=run, options=("--level", level))
    assert done.status == 128 + signal.SIGSEGV, done.stderr
    handle, child = done.stdout.split()
    assert child == "0"
    parent = next(box for box in done.boxes if box.crash is not None)
    nodes = [node for node in data_of(parent.events, Node) if node.name.startswith("Mul")]
    assert (nodes[-1].device, nodes[-1].stream) == (1, int(handle, 16))
    if level == "ops":
        ops = {(op.device, op.stream) for op in data_of([e for e in parent.events if e.kind == "OP"], Node)}
        assert (1, int(handle, 16)) in ops
    assert parent.counts["hook_errors"] == 0
    current = only_victim(done.report).current_stream
    assert current is not None
    assert (current.device, current.stream) == ("cuda:1", hex(int(handle, 16)))
    assert f"on stream {handle} of cuda:1" in " ".join(done.stderr.split())  # lines are broken anywhere
    others = [box for box in done.boxes if box.ppid == parent.pid and box.events]
    assert others and all(box.counts["hook_errors"] == 0 for box in others)


@pytest.mark.parametrize("between", ["nothing", "stream", "event", "device"])
def test_a_missing_wait_between_two_streams_is_told_with_both_lines(run: Path, between: str) -> None:
    """And none where the program waits."""
    done = program("side_stream", between, run=run, options=("--level", "ops"))
    assert done.status == 1, done.stderr
    found = finding(done.report, "missing-stream-wait")
    if between != "nothing":
        assert found is None
        return
    assert found is not None and found.confidence == "possible" and found.summary is not None
    for text in ("weight.copy_(fresh)", "weight @ weight"):
        assert f"side_stream.py:{line_of('side_stream', text)} in <module>" in found.summary


@pytest.mark.parametrize("between", ["nothing", "event", "polled", "device", "accelerator", "blocking", "anew"])
def test_pinned_memory_that_is_filled_again_under_a_copy_is_told_with_both_lines(run: Path, between: str) -> None:
    """And none where the host waits, or has new memory for each copy."""
    done = program("pinned_refill", between, run=run, options=("--level", "ops"))
    assert done.status == 1, done.stderr
    found = finding(done.report, "missing-stream-wait")
    if between != "nothing":
        assert found is None
        return
    assert found is not None and found.confidence == "possible" and found.summary is not None
    for text in ("staging.fill_(index)", "places[index].copy_(staging"):
        assert f"pinned_refill.py:{line_of('pinned_refill', text)} in <module>" in found.summary
    made = line_of("pinned_refill", "staging = torch.empty(1 << 16, pin_memory=True)")
    assert f"allocated at pinned_refill.py:{made}" in " ".join(found.evidence or [])
