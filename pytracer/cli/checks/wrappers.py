"""Whether DDP and FSDP of this torch have the private attributes that their names come from."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytracer.cli.checks.answer import LIMITED, WORKS, Check, boxes, has_hooks, is_built, last_line, traced
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.journal import AnyFact, Note, select

_PROGRAM = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Linear
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
DistributedDataParallel(Linear(2, 2))(torch.ones(1, 2))
fully_shard(Linear(2, 2), mesh=init_device_mesh("cpu", (1,)))(torch.ones(1, 2))
dist.destroy_process_group()
"""


def check_wrappers() -> Check:
    """A traced child wraps a layer in each; its recording must contain a bucket and a unit with its parameters."""
    if not has_hooks():
        return Check("wrappers", LIMITED, "not tried, there is no torch to hook into")
    if not is_built():
        return Check("wrappers", LIMITED, "not tried, there is no core")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = traced(Path(directory), "-c", _PROGRAM)
        facts = [fact for path in boxes(directory) for fact in read_box(path).facts]
    if done.returncode:
        return Check("wrappers", LIMITED, f"DDP and FSDP could not be tried: {last_line(done)}")
    return wrappers(facts)


def wrappers(facts: Sequence[AnyFact]) -> Check:
    """`facts`: the journal entries of the child's recording."""
    kinds = {fact.kind for fact in facts}
    lost = [name for name, kind in (("DDP's buckets", "BUCKETS"), ("FSDP's units", "UNIT")) if kind not in kinds]
    if lost:
        notes = "; ".join(fact.data.text for fact in select(facts, Note))
        why = f": {notes}" if notes else ""
        return Check("wrappers", LIMITED, f"{' and '.join(lost)} have no names with this torch{why}")
    return Check("wrappers", WORKS, "a traced child recorded a DDP bucket and an FSDP unit with their parameters")
