"""Pre-train a small speech encoder, sharded over the ranks."""
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Encoder(nn.Module):
    def __init__(self, dim=64, depth=8, layerdrop=0.02):
        super().__init__()
        self.inp = nn.Linear(40, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 40)
        self.layerdrop = layerdrop

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            if self.training and torch.rand(()).item() < self.layerdrop:
                continue
            x = layer(x)
        return self.out(x)


def mask_frames(feats, p=0.3):
    mask = torch.rand(feats.shape[:2]) < p
    return feats.masked_fill(mask[..., None], 0.0), mask


def train(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
                            timeout=timedelta(seconds=15))
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = Encoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)

    torch.manual_seed(1234 + rank)
    for step in range(60):
        feats = torch.randn(4, 50, 40).cumsum(1) / 10
        masked, mask = mask_frames(feats)
        loss = (model(masked) - feats)[mask].abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
