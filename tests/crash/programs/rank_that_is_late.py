"""Two ranks of gloo; rank 1 sleeps before the fourth all_reduce: rank_that_is_late.py SECONDS [kill].

With "kill", rank 1 ends itself by SIGKILL in place of sleeping.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(4)
for _ in range(3):
    dist.all_reduce(tensor)
if dist.get_rank() == 1:
    if sys.argv[2:] == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(sys.argv[1]))
dist.all_reduce(tensor)
dist.destroy_process_group()
