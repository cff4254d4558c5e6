"""Ranks of gloo that stand still: standing_still.py KIND SECONDS [UNTIL].

Deadlocks: "ended", "daemon" (ended, and what it has started has another parent), "apart", "cycle". Pauses:
"checkpoint", "evaluation", "compile", "data", each SECONDS long, while the other ranks wait in a barrier; then the job
ends as usual. "data" also ends when the file UNTIL exists.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

kind, seconds = sys.argv[1], float(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
tensor = torch.ones(4)
for _ in range(3):
    dist.all_reduce(tensor)

if kind in ("ended", "daemon"):
    if rank == 1:
        # A child keeps the connections open, as a worker or a logger does: nobody sees that the rank has gone.
        if os.fork() == 0 and (kind == "ended" or os.fork() == 0):
            time.sleep(seconds)
        os._exit(0)
    dist.all_reduce(tensor)
elif kind == "apart":
    if rank == 0:
        dist.all_reduce(tensor)
    else:
        dist.barrier()
elif kind == "cycle":
    dist.barrier(first)
    dist.barrier(second)
    if rank == 0:
        dist.all_reduce(tensor, group=first)
        dist.all_reduce(tensor, group=second)
    else:
        dist.all_reduce(tensor, group=second)
        dist.all_reduce(tensor, group=first)
elif rank == 0:
    until = time.monotonic() + seconds
    if kind == "checkpoint":
        with tempfile.NamedTemporaryFile() as file:
            while time.monotonic() < until:
                file.seek(0)
                torch.save({"weight": torch.ones(1 << 20)}, file)
                time.sleep(0.2)
    elif kind in ("evaluation", "compile"):
        total = 0
        while time.monotonic() < until:
            total += sum(range(10000))
    else:
        while time.monotonic() < until and not os.path.exists(sys.argv[3]):
            time.sleep(0.5)
dist.barrier()
dist.destroy_process_group()
