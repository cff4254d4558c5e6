"""Accelerate's launcher for notebooks on the CPU: ranks that are forked from the process of the notebook."""

import sys

import accelerate
import torch.distributed as dist
import training


def fit(death: str) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    loss = training.train_rank(death, accelerator.process_index)
    accelerator.print(f"loss {loss:.4f}\n", end="", flush=True)  # by one write: another rank prints, too
    dist.destroy_process_group()


if __name__ == "__main__":
    accelerate.debug_launcher(fit, args=(sys.argv[1],), num_processes=2)
