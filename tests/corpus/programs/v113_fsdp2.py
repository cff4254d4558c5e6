"""Small protein language model trained with fully_shard.

torchrun --standalone --nproc-per-node 2 v113_fsdp2.py --steps 30 --save-every 10
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

AMINO = "ACDEFGHIKLMNPQRSTVWY-"


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ProteinLM(nn.Module):
    def __init__(self, dim=64, heads=4, depth=3, length=48):
        super().__init__()
        self.embed = nn.Embedding(len(AMINO), dim)
        self.position = nn.Parameter(torch.zeros(1, length, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, len(AMINO))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class MaskedSequences:
    def __init__(self, rank, batch_size, length=48):
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.batch_size, self.length = batch_size, length

    def next_batch(self):
        tokens = torch.randint(0, len(AMINO) - 1, (self.batch_size, self.length), generator=self.generator)
        masked = torch.rand(tokens.shape, generator=self.generator) < 0.15
        return tokens.masked_fill(masked, len(AMINO) - 1), tokens, masked


def gather_state_dict(model):
    full = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.full_tensor()
        full[name] = value.detach().cpu().clone()
    return full


class CheckpointWriter:
    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        if rank == 0:
            os.makedirs(folder, exist_ok=True)

    def save(self, model, step):
        if self.rank != 0:
            return
        path = os.path.join(self.folder, f"step_{step:06d}.pt")
        torch.save({"model": gather_state_dict(model), "step": step}, path)
        print(f"[rank 0] wrote {path}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world_size,))
    torch.manual_seed(5)

    model = ProteinLM()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = MaskedSequences(rank, args.batch_size)
    writer = CheckpointWriter(args.out, rank)

    for step in range(1, args.steps + 1):
        tokens, targets, masked = data.next_batch()
        logits = model(tokens)
        loss = F.cross_entropy(logits[masked], targets[masked])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 5 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        if step % args.save_every == 0:
            writer.save(model, step)

    print(f"[rank {rank}] training finished", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
