"""Fine-tune with FSDP2 on two ranks and write a checkpoint that a single process can load."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Regressor(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def to_cpu(value):
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.cpu() if torch.is_tensor(value) else value


def save_second_moments(model, optimizer, path):
    moments = {}
    for name, param in model.named_parameters():
        moments[name] = to_cpu(optimizer.state[param]["exp_avg_sq"])
    torch.save(moments, path)


def train(model, optimizer, rank, steps=30):
    for step in range(1, steps + 1):
        x = torch.randn(16, 32)
        loss = nn.functional.mse_loss(model(x), x.mean(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Regressor()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, rank)
    if rank == 0:
        os.makedirs("checkpoints", exist_ok=True)
        print("saving optimizer state", flush=True)
        save_second_moments(model, optimizer, "checkpoints/second_moments.pt")
    dist.barrier()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
