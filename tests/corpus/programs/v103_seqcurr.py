"""Protein language model with a sequence-length curriculum, trained on several processes.

torchrun --standalone --nproc-per-node 2 v103_seqcurr.py
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
MASK = len(RESIDUES)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ProteinLM(nn.Module):
    def __init__(self, dim=48, heads=4, depth=3, max_len=512, save_memory_from=128):
        super().__init__()
        self.save_memory_from = save_memory_from
        self.tokens = nn.Embedding(len(RESIDUES) + 1, dim)
        self.positions = nn.Embedding(max_len, dim)
        self.family = nn.Embedding(16, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, len(RESIDUES))

    def forward(self, seq, family=None):
        x = self.tokens(seq) + self.positions.weight[: seq.size(1)]
        if family is not None:
            x = x + self.family(family).unsqueeze(1)
        for block in self.blocks:
            if self.training and seq.size(1) >= self.save_memory_from:
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = block(x)
        return self.head(x)


class SyntheticProteins:
    """Sequences drawn from a few first-order Markov chains; a part of them has a known family."""

    def __init__(self, rank, batch):
        self.gen = torch.Generator().manual_seed(77 + rank)
        chains = torch.Generator().manual_seed(1)
        self.trans = F.softmax(2.5 * torch.randn(16, 20, 20, generator=chains), dim=-1)
        self.batch = batch

    def sample(self, length, labelled):
        family = torch.randint(0, 16, (self.batch,), generator=self.gen)
        seq = torch.zeros(self.batch, length, dtype=torch.long)
        for i in range(1, length):
            seq[:, i] = torch.multinomial(self.trans[family, seq[:, i - 1]], 1, generator=self.gen).squeeze(1)
        hidden = torch.rand(seq.shape, generator=self.gen) < 0.15
        return seq.masked_fill(hidden, MASK), seq, hidden, (family if labelled else None)


def train(args):
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(ProteinLM(save_memory_from=args.save_memory_from), find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps * len(args.lengths))
    data = SyntheticProteins(rank, args.batch)
    for length in args.lengths:
        for step in range(args.steps):
            inputs, targets, hidden, family = data.sample(length, labelled=step % 3 == 0)
            logits = model(inputs, family)
            loss = F.cross_entropy(logits[hidden], targets[hidden])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if rank == 0 and step % 6 == 0:
                print(f"length {length:3d} step {step:3d} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), args.out)
        print(f"saved {args.out}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--save-memory-from", type=int, default=128)
    parser.add_argument("--out", default="protein_lm.pt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
