"""FSDP2 on one rank gathers nothing: its parameters are noted without an operator of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conditions import needs_native
from tests.support.crash import traced_run

pytestmark = needs_native

PROGRAM = """\
import ctypes
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
    net = torch.nn.Linear(8, 2)
    fully_shard(net, reshard_after_forward=False)
    net(torch.ones(2, 8))
    ctypes.string_at(8)
"""


def test_parameters_of_the_first_forward_are_noted(tmp_path: Path) -> None:
    """Before any backward."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = traced_run(sys.executable, program, run=tmp_path / "run")
    seen = [(item.role, item.nbytes) for box in done.boxes for item in box.scoped_tensors]
    assert seen == [("unsharded_parameter", 64), ("unsharded_parameter", 8)]
    (unit,) = [unit for process in done.report.processes or [] for unit in process.fsdp or []]
    assert unit.state == "unsharded"
