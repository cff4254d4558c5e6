"""A program may name every argument: what stands in for torch's functions has no names of its own in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conditions import needs_native
from tests.support.crash import environment, traced_run

pytestmark = needs_native

PROGRAM = """\
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, thing, module, box, act, scope_id, original, subject):
        return self.experts[module](thing) + self.experts[1 - module](box * act * scope_id * original * subject)

dist.init_process_group(backend="gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
torch.manual_seed(0)
model = DistributedDataParallel(module=Router(), device_ids=None, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(params=model.parameters(), lr=0.1)
group = dist.new_group(ranks=[0], backend="gloo")
data = torch.utils.data.DataLoader(dataset=torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=4)
for (thing,) in data:
    loss = model(thing=thing, module=0, box=thing, act=1, scope_id=1, original=1, subject=1).square().mean()
    loss.backward(gradient=None, retain_graph=False)
    optimizer.step(closure=None)
    optimizer.zero_grad(set_to_none=True)
    dist.all_reduce(tensor=loss.detach(), op=dist.ReduceOp.SUM, group=group, async_op=False)
    dist.barrier(group=group)
    print(loss.item(), flush=True)
dist.destroy_process_group(group=None)
"""


def test_a_program_that_names_its_arguments_runs_as_without_us(tmp_path: Path) -> None:
    """Arguments of torch's, and of the model's own forward()."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    alone = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "store")], env=environment(), capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr
    done = traced_run(sys.executable, str(program), str(tmp_path / "other"), run=tmp_path / "run")
    assert (done.status, done.stdout) == (0, alone.stdout), done.stderr
