"""Three ranks over gloo; each dumps torch's Flight Recorder beside its black box, then they disagree."""

import datetime
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    rank = dist.get_rank()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    dist.all_gather([torch.empty(3) for _ in range(3)], torch.ones(3))
    pair = dist.new_group([0, 1], group_desc="pair")
    if rank < 2:
        dist.broadcast(torch.ones(2, 3), 0, group=pair)
    dist.barrier()
    content = _dump_fr_trace_json(True, False) if rank == 2 else _dump_fr_trace(True, True, False)
    with open(f"{os.environ['PYTRACER_DIR']}/comm_lib_trace_rank_{rank}", "wb") as file:
        file.write(content)
    if rank == 2:
        dist.all_reduce(torch.ones(8))
    else:
        dist.broadcast(torch.ones(8), 0)
    dist.barrier()


if __name__ == "__main__":
    main()
