"""Fine-tune a small sharded language model and keep Adam's second moments for attribution.

torchrun --standalone --nproc-per-node 2 h104_moments.py --run-dir runs/tiny
"""
import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TinyLM(nn.Module):
    def __init__(self, vocab=512, dim=64, heads=4, layers=2, context=32):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(x)


def shard_model(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def second_moments(model, optimizer):
    """Name -> running average of the squared gradient, as plain CPU tensors."""
    moments = {}
    for name, param in model.named_parameters():
        value = optimizer.state[param]["exp_avg_sq"]
        if isinstance(value, DTensor):
            value = value.full_tensor()
        moments[name] = value.cpu()
    return moments


def save_second_moments(model, optimizer, run_dir):
    moments = second_moments(model, optimizer)
    if dist.get_rank() == 0:
        run_dir.mkdir(parents=True, exist_ok=True)
        torch.save(moments, run_dir / "second_moments.pt")
        print(f"saved second moments of {len(moments)} parameters to {run_dir}", flush=True)


def train(model, optimizer, steps, batch_size, rank):
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        ids = torch.randint(0, 512, (batch_size, 33), generator=gen)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"[rank {rank}] step {step}: loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", type=Path, default=Path("runs/tiny"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    global_rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (world_size,))
    model = shard_model(TinyLM(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    train(model, optimizer, args.steps, args.batch_size, global_rank)
    if global_rank == 0:
        save_second_moments(model, optimizer, args.run_dir)
    dist.barrier()
    if global_rank == 0:
        print("training finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
