"""The JSON report follows the contract of docs/reference/report.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.render.json import render_json
from tests.conditions import needs_capstone
from tests.support import scenarios as s

KEYS: dict[str, set[str]] = {
    "": {"schema", "version", "run", "verdict", "findings", "checked", "processes", "collectives", "damage", "counts"},
    "run": {
        "id", "directory", "started", "launcher", "command", "world_size", "hosts", "torch", "cuda", "python",
    },
    "verdict": {"class", "confidence", "rank", "pid", "summary", "advice", "evidence"},
    "findings.0": {"id", "confidence", "ranks", "summary", "evidence", "missing", "advice"},
    "checked.0": {"id", "result", "why"},
    "processes.2": {
        "pid", "ppid", "host", "rank", "local_rank", "world_size", "role", "command", "started", "ended", "status",
        "primary", "signal", "fault", "thread", "python_stack", "native_stack", "threads", "registers", "exception",
        "step", "autograd_node", "last_op", "last_collective", "ddp", "fsdp", "cuda_graphs", "cuda_streams", "memory",
        "environment", "notes", "why", "recent_collectives", "abort_text", "threads_found", "threads_total",
        "stack_cycle", "also_crashed", "pointers", "memory_blocks", "images", "mappings",
    },
    "processes.2.status": {"kind", "exit_code", "signal", "reported_by"},
    "processes.2.signal": {"number", "name", "code", "sender_pid", "sender_command"},
    "processes.2.fault": {
        "addr", "access", "size", "kind", "storage", "bucket", "fsdp", "cuda_graph", "mapping", "instruction",
        "expression", "expression_found", "says", "region", "neighbors", "earlier_lives", "operands",
    },
    "processes.2.fault.region": {
        "kind", "says", "start", "end", "permissions", "path", "offset", "section", "function", "function_offset",
        "thread",
    },
    "processes.2.fault.operands.0": {"register", "role", "value", "scale", "kind", "says", "storage"},
    "processes.2.fault.storage": {
        "base", "nbytes", "offset_bytes", "distance_bytes", "device", "state", "names", "allocated", "freed", "found",
    },
    "processes.2.fault.storage.freed": {"time", "thread", "step", "python", "autograd_node", "op"},
    "processes.2.fault.storage.freed.python": {"function", "file", "line"},
    "processes.2.fault.bucket": {
        "module", "index", "generation", "nbytes", "parameters", "offset_bytes", "parameter",
    },
    "processes.2.thread": {"tid", "name", "kind"},
    "processes.2.python_stack.0": {"function", "file", "line"},
    "processes.2.native_stack.0": {"image", "offset", "build_id", "function", "found"},
    "processes.2.threads.0": {
        "tid", "name", "kind", "crashed", "python_stack", "native_stack", "state", "frames_left_out",
        "frames_after_gap", "system_call", "stack",
    },
    "processes.2.pointers.0": {
        "register", "addr", "says", "kind", "storage", "offset_bytes", "names", "found",
    },
    "processes.2.images.0": {"path", "start", "end", "build_id"},
    "processes.2.mappings.0": {"start", "end", "permissions", "offset", "path"},
    "processes.2.autograd_node": {"name", "sequence_nr", "thread"},
    "processes.2.last_collective": {
        "group", "op", "sequence_nr", "state", "sizes", "dtypes", "root", "reduce_op", "buffer",
    },
    "processes.2.last_collective.buffer": {"addr", "names", "bucket_index"},
    "processes.2.ddp.0": {"module", "buckets", "has_rebuilt", "ready"},
    "processes.2.ddp.0.buckets.0": {"index", "addr", "nbytes", "generation", "parameters"},
    "processes.1.exception": {"type", "message", "python_stack", "language"},
    "collectives": {"groups"},
    "collectives.groups.0": {"name", "ranks", "last", "mismatch", "missing_ranks"},
}  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = tmp_path_factory.mktemp("run")
    (run / "boxes").mkdir()
    return json.loads(render_json(build_report(s.use_after_free(run))))


def at(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        value = value[int(part)] if part.isdigit() else value[part]
    return value


@pytest.mark.parametrize("path", KEYS)
def test_every_key_of_the_contract_is_present(report: Any, path: str) -> None:
    """Keys may be added, never renamed."""
    assert KEYS[path] - set(at(report, path)) == set()


@needs_capstone
def test_the_demo_reads_as_the_issue_demands(report: Any) -> None:
    """Class, rank, kind, bucket, names, line, collective, status of every process."""
    assert (report["schema"], report["version"]) == ("pytracer-report", 1)
    assert (report["verdict"]["class"], report["verdict"]["rank"]) == ("use-after-free", 1)
    victim = next(process for process in report["processes"] if process["rank"] == 1)
    assert victim["fault"]["kind"] == "freed-storage"
    assert victim["fault"]["addr"] == "0x7f3000014000"
    assert (victim["fault"]["access"], victim["fault"]["size"]) == ("read", 4)
    assert victim["fault"]["bucket"]["index"] == 0
    assert victim["fault"]["storage"]["names"] == ["DDP bucket 0 of model (generation 0)"]
    assert victim["python_stack"][0]["line"] == 41
    assert victim["last_collective"]["op"] == "all_reduce"
    assert [process["status"]["signal"] for process in report["processes"]] == [None, None, 11]
