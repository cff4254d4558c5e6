# hiyouga/LlamaFactory#3036, pytorch/pytorch#67538: SIGHUP ends torchrun when the terminal goes
import os
import pty
import sys
import time

if "RANK" not in os.environ:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    job, terminal = pty.fork()
    if job == 0:
        os.execv(sys.executable, torchrun)
    time.sleep(9)
    os.close(terminal)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
while True:
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.02)
