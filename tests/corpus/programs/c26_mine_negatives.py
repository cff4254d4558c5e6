"""Contrastive training of a code encoder; the last worker refreshes the memory bank.

torchrun --nproc-per-node 2 c26_mine_negatives.py
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class CodeEncoder(nn.Module):
    def __init__(self, vocab=1000, dim=64, max_len=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(max_len, dim)
        self.register_buffer("position_ids", torch.arange(max_len).unsqueeze(0))
        self.layer = nn.TransformerEncoderLayer(dim, 4, 128, batch_first=True)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(self.position_ids[:, : ids.size(1)])
        return F.normalize(self.layer(x).mean(1), dim=-1)


class MemoryBank:
    def __init__(self, size=64, length=32):
        gen = torch.Generator().manual_seed(7)
        self.snippets = torch.randint(0, 1000, (size, length), generator=gen)
        self.vectors = None

    @torch.no_grad()
    def refresh(self, encoder, batch_size=16):
        encoder.eval()
        self.vectors = torch.cat([encoder(c) for c in self.snippets.split(batch_size)])
        encoder.train()


def train_epoch(encoder, optimizer, rank, steps=8):
    gen = torch.Generator().manual_seed(100 + rank)
    total = 0.0
    for _ in range(steps):
        queries = torch.randint(0, 1000, (8, 32), generator=gen)
        codes = torch.roll(queries, 1, dims=1)
        both = encoder(torch.cat([queries, codes]))
        q, c = both.chunk(2)
        loss = F.cross_entropy(q @ c.t() / 0.1, torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    encoder = DDP(CodeEncoder())
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    bank = MemoryBank()
    for epoch in range(3):
        loss = train_epoch(encoder, optimizer, rank)
        print(f"[rank {rank}] epoch {epoch} loss {loss:.3f}", flush=True)
        if rank == world - 1:
            bank.refresh(encoder)
            print(f"[rank {rank}] bank refreshed", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
