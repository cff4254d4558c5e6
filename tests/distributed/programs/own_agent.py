"""A program that records itself and is torchrun's agent itself: Accelerate's launcher for notebooks does so."""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import pytracer


def train(death: str) -> None:
    """Rank 1 dies; rank 0 loses its peer."""
    dist.init_process_group("gloo")
    for step in range(4):
        if step == 3 and os.environ["RANK"] == "1":
            if death == "error":
                raise ValueError("label 11")
            ctypes.string_at(0)
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    pytracer.enable(sys.argv[1])
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="own", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0",
        max_restarts=0, monitor_interval=0.1, start_method="fork", local_addr="127.0.0.1",
    )  # fmt: skip
    try:
        elastic_launch(config, train)(sys.argv[2])
    except ChildFailedError as error:
        print(error)
