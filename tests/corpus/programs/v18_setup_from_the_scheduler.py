import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH_JOB = {"SLURM_JOB_ID": "48213", "SLURM_NTASKS": "32", "SLURM_PROCID": "0", "SLURM_NODELIST": "127.0.0.1"}


def setup_distributed(backend="gloo", port=None):
    if "SLURM_JOB_ID" in os.environ:
        rank = int(os.environ["SLURM_PROCID"])
        world_size = int(os.environ["SLURM_NTASKS"])
        os.environ.setdefault("MASTER_PORT", str(port or 29522))
        os.environ.setdefault("MASTER_ADDR", os.environ["SLURM_NODELIST"])
        os.environ["WORLD_SIZE"] = str(world_size)
        os.environ["RANK"] = str(rank)
    else:
        rank = int(os.environ["RANK"])
        world_size = int(os.environ["WORLD_SIZE"])
    print(f"rank {rank} of {world_size}: setting up", flush=True)
    dist.init_process_group(backend=backend, world_size=world_size, rank=rank)
    return rank, world_size


def train(steps=100):
    rank, world_size = setup_distributed()
    model = DistributedDataParallel(nn.Linear(512, 512))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for step in range(steps):
        images, texts = torch.randn(16, 512), torch.randn(16, 512)
        loss = 1 - nn.functional.cosine_similarity(model(images), texts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.update(BATCH_JOB)
    train()
