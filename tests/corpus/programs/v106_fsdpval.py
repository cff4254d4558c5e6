"""Pre-train a small decoder with FSDP2; validation runs over the complete held-out set every few steps.

torchrun --standalone --nproc-per-node 2 v106_fsdpval.py
"""
import argparse
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

VOCAB = 128


class PackedDocuments(IterableDataset):
    """Documents of varying length, split over the ranks and packed to fixed-length sequences."""

    def __init__(self, split, n_docs, seq_len, rank, world, infinite):
        self.split, self.n_docs, self.seq_len = split, n_docs, seq_len
        self.rank, self.world, self.infinite = rank, world, infinite

    def documents(self):
        for doc in range(self.rank, self.n_docs, self.world):
            rng = random.Random(f"{self.split}-{doc}")
            length = int(rng.lognormvariate(4.6, 0.9)) + 8
            out = [token := rng.randrange(VOCAB)]
            for _ in range(length):
                token = (3 * token + rng.choice((1, 1, 1, 5, 17))) % VOCAB
                out.append(token)
            yield out

    def __iter__(self):
        buffer = []
        while True:
            for tokens in self.documents():
                buffer.extend(tokens)
                while len(buffer) > self.seq_len:
                    window = torch.tensor(buffer[: self.seq_len + 1])
                    buffer = buffer[self.seq_len + 1:]
                    yield window[:-1], window[1:]
            if not self.infinite:
                return


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, dim=64, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


@torch.no_grad()
def validate(model, loader, max_steps):
    model.eval()
    total = torch.zeros(2)
    for i, (x, y) in enumerate(loader):
        if max_steps > 0 and i >= max_steps:
            break
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        total += torch.tensor([loss.item(), y.numel()])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--val-every", type=int, default=15)
    parser.add_argument("--val-steps", type=int, default=-1, help="-1: the complete validation set")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = Decoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    train_set = PackedDocuments("train", 400, args.seq_len, rank, world, infinite=True)
    val_set = PackedDocuments("val", 60, args.seq_len, rank, world, infinite=False)
    batches = iter(DataLoader(train_set, batch_size=args.batch))
    for step in range(1, args.steps + 1):
        x, y = next(batches)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % args.val_every == 0:
            val_loss = validate(model, DataLoader(val_set, batch_size=args.batch), args.val_steps)
            if rank == 0:
                print(f"step {step} validation loss {val_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
