"""The demo: a two-rank DDP job in which rank 1 reads a gradient bucket that DDP has released."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_compiler, needs_core, needs_native
from tests.support.cli import pytracer
from tests.support.crash import EXAMPLES, Ended, environment, torchrun, traced_run

pytestmark = [needs_core, needs_native, needs_compiler]

EXAMPLE = EXAMPLES / "ddp_use_after_free.py"
SIGSEGV, SIGTERM = 11, 15


@pytest.fixture(scope="module")
def job(runs: Callable[[], Path]) -> Ended:
    """The demo, run once under `pytracer run`."""
    return traced_run(*torchrun(EXAMPLE), run=runs())


@pytest.fixture(scope="module")
def report(job: Ended) -> dict[str, Any]:
    """Its report, as `pytracer inspect --json` prints it."""
    done = pytracer("inspect", job.run, "--json", cwd=job.run.parent)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def ranks(report: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The two ranks."""
    return {p["rank"]: p for p in report["processes"] if p["rank"] is not None}


def line_of(text: str) -> int:
    """The number of the one line of the example that contains `text`."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]


def is_line(frame: dict[str, Any], text: str) -> bool:
    """Whether a frame is at the line of the example that contains `text`."""
    return bool(os.path.realpath(frame["file"]) == str(EXAMPLE) and frame["line"] == line_of(text))


def test_status_is_torchruns(job: Ended) -> None:
    """torchrun exits with 1 when a rank dies; so does `pytracer run`, and torchrun still names the failed rank."""
    assert job.status == 1
    assert "ChildFailedError" in job.stderr
    assert "exitcode  : -11" in job.stderr


def test_output_of_the_job_comes_through(job: Ended) -> None:
    """stdout has the job's output and nothing else."""
    assert "step 0: loss" in job.stdout
    assert "gradient magnitude of the last step" in job.stdout
    assert "pytracer" not in job.stdout


def test_verdict_is_use_after_free_on_rank_1(report: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> None:
    """The headline: class, rank, pid, and a confidence that the evidence supports."""
    verdict = report["verdict"]
    assert (verdict["class"], verdict["rank"], verdict["pid"]) == ("use-after-free", 1, ranks[1]["pid"])
    assert verdict["confidence"] == "certain"
    assert "bucket 0 of Transformer" in verdict["summary"]
    assert verdict["advice"]


def test_fault_is_inside_a_freed_bucket(ranks: dict[int, dict[str, Any]]) -> None:
    """Signal, code, access, and the freed storage: offset, bucket and parameters."""
    process, fault = ranks[1], ranks[1]["fault"]
    assert (process["signal"]["name"], process["signal"]["code"]) == ("SIGSEGV", "SEGV_MAPERR")
    assert (fault["kind"], fault["access"]) == ("freed-storage", "read")
    storage, bucket = fault["storage"], fault["bucket"]
    assert storage["state"] == "freed"
    assert int(fault["addr"], 16) == int(storage["base"], 16) + storage["offset_bytes"]
    assert 0 <= storage["offset_bytes"] < storage["nbytes"]
    assert storage["names"][0] == "DDP bucket 0 of Transformer (generation 0)"
    assert all(name.startswith("gradient of ") for name in storage["names"][1:])  # they were views of it
    assert (bucket["index"], bucket["module"], bucket["generation"]) == (0, "Transformer", 0)
    assert bucket["parameter"] == "embedding.weight"
    assert bucket["parameter"] in bucket["parameters"]
    assert len(bucket["parameters"]) == 49
    assert bucket["nbytes"] == storage["nbytes"] > 32 << 20


def test_both_ends_of_the_storage_have_a_line_of_the_example(ranks: dict[int, dict[str, Any]]) -> None:
    """Allocated where the model is wrapped, freed in the second forward; each inside DDP."""
    storage = ranks[1]["fault"]["storage"]
    assert is_line(storage["allocated"]["caller"], "model = DistributedDataParallel(")
    assert is_line(storage["freed"]["caller"], "logits = LogGradients.apply(")
    assert storage["allocated"]["python"]["function"].endswith("_ddp_init_helper")
    assert storage["freed"]["python"]["function"].endswith("_pre_forward")
    assert storage["freed"]["step"] == 1
    assert storage["allocated"]["time"] < storage["freed"]["time"]


def test_python_stack_begins_at_the_call_into_native_code(ranks: dict[int, dict[str, Any]]) -> None:
    """The innermost line is the ctypes call; the training loop is further out."""
    stack = ranks[1]["python_stack"]
    assert stack[0]["function"].endswith("total")
    assert is_line(stack[0], "self.lib.monitor_total()")
    assert stack[1]["function"].endswith("backward")
    assert is_line(stack[1], "ctx.monitor.total()")
    assert any(is_line(frame, "loss.backward()") for frame in stack)


def test_native_function_is_named(ranks: dict[int, dict[str, Any]]) -> None:
    """The first native frame is the C function, exact; the autograd engine is among the others."""
    stack = ranks[1]["native_stack"]
    assert (stack[0]["function"], stack[0]["found"]) == ("monitor_total", "exact")
    assert stack[0]["image"].endswith("libgrad_monitor.so")
    assert any("torch::autograd::Engine" in (frame["function"] or "") for frame in stack)


def test_autograd_node_and_step_are_known(ranks: dict[int, dict[str, Any]]) -> None:
    """The autograd node, its thread and the step."""
    assert ranks[1]["autograd_node"]["name"] == "LogGradientsBackward"
    assert ranks[1]["autograd_node"]["sequence_nr"] > 0
    assert ranks[1]["step"] == 1
    assert ranks[1]["thread"]["kind"] == "main"


def test_last_collective_of_both_ranks_has_a_state(ranks: dict[int, dict[str, Any]]) -> None:
    """Rank 1 finished the all-reduce of the loss; rank 0 did too, or entered a bucket's that rank 1 never entered."""
    last = {rank: process["last_collective"] for rank, process in ranks.items()}
    assert last[1]["op"] == last[0]["op"] == "all_reduce"
    assert (last[1]["state"], last[1]["sizes"]) == ("completed", [])
    assert last[0]["sequence_nr"] >= last[1]["sequence_nr"]
    if last[0]["sequence_nr"] > last[1]["sequence_nr"]:
        assert last[0]["state"] in ("scheduled", "started", "failed")
        assert last[0]["buffer"]["bucket_index"] is not None


def test_first_death_is_told_from_its_consequence(ranks: dict[int, dict[str, Any]]) -> None:
    """Rank 1 died first; rank 0 died as a consequence, by torchrun's SIGTERM or by the error of its all-reduce."""
    assert ranks[1]["primary"] is True
    assert ranks[0]["primary"] is False
    assert ranks[1]["ended"] < ranks[0]["ended"]


def test_every_process_has_a_status(report: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> None:
    """Signals of the ranks, exit code of torchrun's agent; the compiler that rank 1 started exited normally."""
    assert ranks[1]["status"]["signal"] == SIGSEGV
    assert ranks[1]["status"]["reported_by"] == "handler"
    status = ranks[0]["status"]
    assert (status["signal"], status["kind"]) == (SIGTERM, "signaled") or status["kind"] == "exception"
    assert status["kind"] == "signaled" or (status["signal"], status["exit_code"]) == (None, 1)
    launcher = next(p for p in report["processes"] if p["role"] == "launcher")
    assert (launcher["status"]["exit_code"], launcher["status"]["signal"]) == (1, None)
    for process in report["processes"]:
        assert process["status"]["kind"] in ("exited", "signaled", "exception")
        assert "signal" in process["status"]
        if process["role"] == "child":
            assert process["status"]["exit_code"] == 0
    assert {p["ppid"] for p in ranks.values()} == {launcher["pid"]}


def test_nothing_was_lost_or_damaged(job: Ended, report: dict[str, Any]) -> None:
    """Every recording is whole, no hook failed, nothing was dropped."""
    assert report["damage"] == []
    for box in job.boxes:
        assert box.damage == ()
        assert (box.counts["dropped"], box.counts["hook_errors"], box.counts["torn_records"]) == (0, 0, 0)
        assert [note.text for note in box.notes] == []


def test_text_fits_one_screen_and_says_it_all(job: Ended) -> None:
    """At most 45 lines of 100 columns, with all the facts of the crash."""
    environ = environment(COLUMNS="100")
    done = pytracer("inspect", job.run, cwd=job.run.parent, env=environ)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    text = " ".join(done.stdout.split())
    for words in (
        "Rank 1", "SIGSEGV (SEGV_MAPERR)", "freed storage", "bytes in", "bucket 0 of Transformer", "embedding.weight",
        "allocated", "freed", f"ddp_use_after_free.py:{line_of('self.lib.monitor_total()')}", "monitor_total",
        "LogGradientsBackward", "all_reduce #", "died first", "consequence", "next ",
    ):  # fmt: skip
        assert words in text, words
    assert text in " ".join(job.stderr.split()), "pytracer run prints the same report after the job's own output"
