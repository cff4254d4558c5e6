"""CUDA graphs that are replayed after one of their inputs was freed, and healthy ones without a finding."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pytracer.report.job import CudaGraph, Report
from tests.cuda.jobs import finding, line_of, only_victim, program

pytestmark = pytest.mark.fake_cuda
RULE = "cuda-graph-input-freed"


def graph_of(report: Report) -> CudaGraph:
    """The only graph of the only process."""
    (process,) = report.processes or []
    (graph,) = process.cuda_graphs or []
    return graph


def test_a_healthy_replay_stays_silent(run: Path) -> None:
    """Nothing on stderr, no finding; the graph, destroyed with its function, and its inputs are recorded."""
    done = program("graph_replay", "kept", "well", run=run, PYTRACER_CUDA_GRAPHS="warn")
    assert done.status == 0 and "pytracer: recorded in" in done.stderr and len(done.stderr.splitlines()) == 1
    graph = graph_of(done.report)
    assert (graph.state, graph.replays, graph.broken_replays, graph.inputs, graph.unknown_inputs) == (
        "reset", 3, 0, 2, 0,
    )  # fmt: skip
    assert graph.captured_by is not None and graph.captured_by.line == line_of("graph_replay", "with torch.cuda.graph")


@pytest.mark.parametrize("fate", ["deleted", "reallocated", "resized"])
def test_a_replay_without_its_input_is_told_at_the_crash(run: Path, fate: str) -> None:
    """The call sites of its allocation and free, and the other tensor that is there now."""
    report = program("graph_replay", fate, "error", run=run).report
    found = finding(report, RULE)
    assert found is not None and found.summary is not None and found.evidence is not None
    assert "after an input of it had been freed" in found.summary and "2 times" in found.summary
    assert ("belongs to another tensor now" in found.summary) == (fate == "reallocated")
    where = {"resized": "resize_(0)", "deleted": 'del keep["static"]', "reallocated": 'del keep["static"]'}[fate]
    assert f"graph_replay.py:{line_of('graph_replay', where)} in main" in found.evidence[0]
    assert "used first by kernel vectorized_elementwise_kernel" in found.evidence[0]  # of torch for CUDA 13
    assert report.verdict is not None and report.verdict.class_ == "cuda-error"
    assert graph_of(report).broken_replays == 2


def test_an_input_of_which_only_the_shape_was_used_may_go(run: Path) -> None:
    """empty_like adds nothing to the graph: freeing its argument breaks nothing."""
    report = program("graph_replay", "overwritten", "error", run=run).report
    assert finding(report, RULE) is None
    assert graph_of(report).broken_replays == 0


def test_a_replay_without_its_input_warns_on_request(run: Path) -> None:
    """Once, at the line that replays."""
    done = program("graph_replay", "deleted", "well", run=run, options=("--cuda-graphs", "warn"))
    assert done.status == 0
    line = line_of("graph_replay", "graph.replay()  # after")
    warned = [item for item in done.stderr.splitlines() if "CudaGraphWarning" in item]
    assert len(warned) == 1 and f"graph_replay.py:{line}: CudaGraphWarning" in warned[0]
    assert "CUDA graph 1 is replayed although an input of it was freed since its capture" in warned[0]


def test_without_the_request_nothing_is_printed(run: Path) -> None:
    """A tracer adds nothing to the output of a job."""
    done = program("graph_replay", "deleted", "well", run=run)
    assert done.status == 0 and len(done.stderr.splitlines()) == 1


def test_memory_of_a_graph_that_was_reset(run: Path) -> None:
    """The fault is in its former pool."""
    done = program("graph_replay", "reset", "fault", run=run)
    assert done.status == 128 + signal.SIGSEGV
    fault = only_victim(done.report).fault
    assert fault is not None and fault.cuda_graph is not None
    assert (fault.cuda_graph.id, fault.cuda_graph.role) == (1, "pool-memory")
    assert fault.cuda_graph.note is not None and "the graph was reset before" in fault.cuda_graph.note
    assert f"graph_replay.py:{line_of('graph_replay', 'graph.reset()')}" in fault.cuda_graph.note


def test_graphs_of_compiled_functions_are_named(run: Path) -> None:
    """By inductor's trees; a healthy program stays silent."""
    done = program("compiled_graphs", "well", run=run, options=("--cuda-graphs", "warn"))
    assert done.status == 0, done.stderr
    assert "CudaGraphWarning" not in done.stderr
    graphs = {graph.name: graph for process in done.report.processes or [] for graph in process.cuda_graphs or []}
    assert "compiled function 0 (inference), scaled" in graphs
    assert "compiled function 1 (inference), model.py:31 in attention" in graphs
    named = [graph for name, graph in graphs.items() if name]
    assert all(graph.broken_replays == 0 and (graph.replays or 0) >= 3 for graph in named)


def test_a_fault_in_the_memory_of_a_compiled_function_names_it(run: Path) -> None:
    """Its output is in the pool of the tree."""
    done = program("compiled_graphs", "fault", run=run)
    assert done.status == 128 + signal.SIGSEGV, done.stderr
    fault = only_victim(done.report).fault
    assert fault is not None and fault.cuda_graph is not None and fault.cuda_graph.role == "pool-memory"
    assert fault.cuda_graph.name == "compiled function 1 (inference), model.py:31 in attention"


def test_the_line_that_replays_a_broken_graph_is_recorded(run: Path) -> None:
    """At every level."""
    found = finding(program("graph_replay", "deleted", "error", run=run).report, RULE)
    line = line_of("graph_replay", "graph.replay()  # after")
    assert found is not None and f"2 times, first at graph_replay.py:{line} in main, after" in (found.summary or "")
