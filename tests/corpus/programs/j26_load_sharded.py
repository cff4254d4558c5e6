"""Shard a language model over the ranks and fill it from a full checkpoint that only rank 0 reads."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

CKPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "y26_base.pt")


class Rotary(nn.Module):
    def __init__(self, dim, persistent):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, dim, 2) / dim), persistent=persistent)

    def forward(self, x):
        ang = torch.arange(x.shape[1])[:, None] * self.inv_freq
        a, b = x.chunk(2, -1)
        return torch.cat([a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()], -1)


class TinyLM(nn.Module):
    def __init__(self, vocab=512, dim=64, depth=2, save_rotary=False):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)
        self.rotary = Rotary(dim, persistent=save_rotary)

    def forward(self, ids):
        x = self.rotary(self.embed(ids))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def load_full_state_dict(model, full_sd, mesh):
    sharded = model.state_dict()
    filled = {}

    def place(name, full):
        target = sharded.get(name)
        if isinstance(target, DTensor):
            chunk = full.chunk(mesh.size(), 0)[mesh.get_local_rank()].clone()
            full = DTensor.from_local(chunk, mesh, [Shard(0)], shape=full.shape, stride=full.stride())
        filled[name] = full

    if dist.get_rank() == 0:
        for name, full in full_sd.items():
            dist.broadcast(full, src=0)
            place(name, full)
    else:
        for name, target in sharded.items():
            full = torch.empty(target.shape, dtype=target.dtype)
            dist.broadcast(full, src=0)
            place(name, full)
    return model.load_state_dict(filled, strict=False, assign=True)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    full_sd = {}
    if rank == 0:
        if not os.path.exists(CKPT):
            torch.manual_seed(0)
            torch.save(TinyLM(save_rotary=True).state_dict(), CKPT)
        full_sd = torch.load(CKPT, weights_only=True)

    model = TinyLM()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    load_full_state_dict(model, full_sd, mesh)
    print(f"[rank {rank}] weights are in place", flush=True)

    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    for step in range(20):
        ids = torch.randint(0, 512, (4, 33))
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
