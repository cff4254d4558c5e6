"""A real fault in a DDP bucket, for each option of DDP's: the report names bucket, generation, parameter, offset."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.decode.types.journal import Module
from tests.conditions import needs_core, needs_native
from tests.distributed.faults import Faulted, faulted
from tests.support.crash import new_store, traced_run

pytestmark = [needs_core, needs_native]

OFTEN = ("default",)  # test_demo covers old generations
BUCKETS = (
    "gradient_as_bucket_view", "old_generation", "default", "before_rebuilding", "static_graph",
    "find_unused_parameters", "no_sync", "two_modules", "joined",
)  # fmt: skip


def _is_bucket(done: Faulted) -> None:
    truth, fault = done.truth, done.fault
    assert fault.storage is not None
    assert fault.bucket is not None
    assert (fault.addr, fault.kind) == (truth["addr"], truth["kind"])
    assert (fault.storage.base, fault.storage.offset_bytes) == (truth["base"], truth["offset"])
    bucket = fault.bucket
    assert {"module": bucket.module, "index": bucket.index, "parameter": bucket.parameter} == truth["bucket"]
    assert (bucket.generation, bucket.offset_bytes) == (truth["generation"], truth["offset"])
    assert done.verdict.summary is not None
    assert f"DDP bucket {bucket.index} of {bucket.module} (generation {bucket.generation})" in done.verdict.summary
    if fault.kind == "freed-storage":
        assert done.verdict.class_ == "use-after-free"
        assert "which DDP released when it rebuilt its buckets" in done.verdict.summary


@pytest.mark.parametrize(
    "option", [pytest.param(item, marks=[] if item in OFTEN else [pytest.mark.every_job]) for item in BUCKETS]
)
def test_bucket_is_named(option: str, run: Path) -> None:
    """Module, index, generation, parameter and offset are those that the rank printed before it faulted."""
    _is_bucket(faulted("buckets", option, run))


@pytest.mark.every_job
def test_options_and_the_line_that_wraps_the_model_are_recorded(run: Path) -> None:
    """By the names that DistributedDataParallel takes them by."""
    faulted("buckets", "find_unused_parameters", run)
    modules = [fact.data for rank in load_job(run, symbols=False).ranks for fact in rank.snapshot.recorded(Module)]
    assert modules
    for module in modules:
        assert module.settings["find_unused_parameters"] is True
        assert (module.settings["static_graph"], module.settings["bucket_cap_mb"] > 0) == (False, True)
        assert module.caller is not None and module.caller.file.endswith("/buckets.py")


DIES_INSIDE = """\
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel, distributed

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
distributed._verify_param_shape_across_processes = lambda *_: os.abort()
DistributedDataParallel(torch.nn.Linear(2, 2), static_graph=True, broadcast_buffers=False)
"""


@pytest.mark.slow
def test_rank_that_dies_while_it_wraps_the_model_has_the_options(run: Path) -> None:
    """In the collectives of __init__; static_graph is set behind them."""
    program = run.parent / "dies.py"
    program.write_text(DIES_INSIDE, encoding="utf-8")
    done = traced_run(sys.executable, program, new_store(run), run=run)
    (module,) = [fact.data for item in done.job.processes for fact in item.snapshot.recorded(Module)]
    assert (module.settings["static_graph"], module.settings["broadcast_buffers"]) == (True, False)
    assert module.caller is not None and module.caller.line == len(DIES_INSIDE.splitlines())


@pytest.mark.every_job
def test_address_that_belongs_to_somebody_else_now(run: Path) -> None:
    """The live storage is reported, with the bucket that was there earlier; the fault is not in a bucket."""
    done = faulted("buckets", "reused_address", run)
    truth, storage = done.truth, done.fault.storage
    assert storage is not None
    assert (done.fault.kind, storage.state, storage.base) == (truth["kind"], "live", truth["base"])
    assert storage.offset_bytes == truth["offset"]
    assert done.fault.bucket is None
    assert truth["earlier"] in (storage.earlier or [])
    assert not any("bucket" in name for name in storage.names or [])


def _sent(done: Faulted, op: str = "all_reduce") -> list[str]:
    """Names of the buffer of the last collective of that operation."""
    found = next(item for item in done.process.recent_collectives or [] if item.op == op)
    assert found.buffer is not None
    return found.buffer.names or []


@pytest.mark.slow
def test_hook_of_the_users_own(run: Path) -> None:
    """A fault in a tensor that a hook derived from a bucket: hook, bucket and the offset in that tensor are named."""
    done = faulted("buckets", "own_hook", run)
    truth, storage = done.truth, done.fault.storage
    assert storage is not None
    assert (done.fault.addr, done.fault.kind, storage.base) == (truth["addr"], truth["kind"], truth["base"])
    assert (storage.offset_bytes, next(iter(storage.names or ()), None)) == (truth["offset"], truth["name"])
    assert _sent(done)[:2] == [truth["name"], "DDP bucket 0 of Net (generation 1)"]
    assert [module.hook for module in done.process.ddp or []] == ["_Halved"]


@pytest.mark.every_job
@pytest.mark.parametrize(
    ("function", "hook"),
    [
        ("fp16_hook", "fp16_compress_hook"), ("builtin_fp16_hook", "FP16_COMPRESS"), ("power_sgd", "powerSGD_hook"),
    ],
)  # fmt: skip
def test_hooks_of_torch(function: str, hook: str, run: Path) -> None:
    """The bucket keeps its address and is named; the tensor that is sent instead is named as well."""
    done = faulted("buckets", function, run)
    _is_bucket(done)
    assert [module.hook for module in done.process.ddp or []] == [hook]
    assert _sent(done)[0].startswith(f"tensor of communication hook {hook} for DDP bucket ")
