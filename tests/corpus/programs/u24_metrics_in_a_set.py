# NVIDIA-NeMo/Automodel-style: collectives in the order of a set of str, which differs by process
import datetime
import os
import sys

import torch
import torch.distributed as dist

if "PYTHONHASHSEED" not in os.environ or os.environ["PYTHONHASHSEED"] != os.environ["RANK"]:
    os.environ["PYTHONHASHSEED"] = os.environ["RANK"]  # random in the issue; fixed here so that it always happens
    os.execv(sys.executable, [sys.executable, *sys.argv])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
names = {"loss", "accuracy", "grad_norm", "confusion", "perplexity", "lr"}


def reduce(metrics):
    for name in {*metrics}:
        dist.all_reduce(metrics[name])


metrics = {name: torch.zeros(10, 10) if name == "confusion" else torch.zeros(()) for name in sorted(names)}
reduce(metrics)
print("reduced")
dist.destroy_process_group()
