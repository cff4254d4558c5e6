"""Two ranks over the fake NCCL: rank 1 is late, rank 0 waits. Prints rank 0's observations as JSON."""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
tensor = torch.arange(8.0).cuda()
dist.all_reduce(tensor)
torch.cuda.synchronize()
store = dist.distributed_c10d._get_default_store()
seen: dict[str, object] = {"data": tensor.cpu().tolist()}
if rank == 0:
    work = dist.all_reduce(tensor, async_op=True)
    seen["done_alone"] = work.is_completed()
    store.set("go", "1")
    work.wait()
    torch.cuda.synchronize()
    seen["done_together"] = work.is_completed()
else:
    store.wait(["go"])
    time.sleep(0.1)
    dist.all_reduce(tensor)
half = dist.new_group([0, 1])
gathered = [torch.empty(8, device="cuda") for _ in range(2)]
dist.all_gather(gathered, tensor, group=half)
torch.cuda.synchronize()
seen["gathered"] = gathered[1].cpu().tolist()
if rank == 0:
    dist.send(tensor, 1)
else:
    dist.recv(tensor, 0)
torch.cuda.synchronize()
dist.destroy_process_group()
if rank == 0:
    json.dump(seen, sys.stdout)
