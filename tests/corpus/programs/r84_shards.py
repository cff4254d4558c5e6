"""Data-parallel training of a tagger on a folder of shards, each rank reads its own."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

VOCAB, TAGS, LENGTH = 200, 6, 24
ROOT = "/tmp/r84_shards_data"


def write_shards(root, count, per_shard):
    os.makedirs(root, exist_ok=True)
    for i in range(count):
        gen = torch.Generator().manual_seed(i)
        tokens = torch.randint(1, VOCAB, (per_shard, LENGTH), generator=gen)
        torch.save({"tokens": tokens, "tags": tokens % TAGS}, os.path.join(root, f"part-{i:03d}.pt"))


class ShardReader(IterableDataset):
    def __init__(self, root, rank, world):
        names = sorted(n for n in os.listdir(root) if n.endswith(".pt"))
        self.paths = [os.path.join(root, n) for n in names][rank::world]

    def __iter__(self):
        for path in self.paths:
            shard = torch.load(path)
            yield from zip(shard["tokens"], shard["tags"])


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim)
        self.places = nn.Parameter(torch.zeros(LENGTH, dim))
        self.layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(dim, TAGS)

    def forward(self, tokens):
        return self.out(self.layer(self.words(tokens) + self.places))


class Trainer:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.seen = 0

    def step(self, tokens, tags):
        logits = self.model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.seen += 1
        return loss.item()

    def epoch(self):
        losses = [self.step(tokens, tags) for tokens, tags in self.loader]
        return sum(losses) / len(losses)


def accuracy(model, seed):
    tokens = torch.randint(1, VOCAB, (64, LENGTH), generator=torch.Generator().manual_seed(seed))
    model.eval()
    with torch.no_grad():
        hits = (model(tokens).argmax(2) == tokens % TAGS).float().mean().item()
    model.train()
    return hits


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    if rank == 0:
        write_shards(ROOT, count=7, per_shard=48)
    dist.barrier()
    reader = ShardReader(ROOT, rank, world)
    trainer = Trainer(DDP(Tagger()), DataLoader(reader, batch_size=16), lr=3e-3)
    print(f"[{rank}] reading from {ROOT}", flush=True)
    for epoch in range(2):
        loss = trainer.epoch()
        hits = accuracy(trainer.model.module, seed=99)
        print(f"[{rank}] epoch {epoch} loss {loss:.3f} accuracy {hits:.3f}", flush=True)
    if rank == 0:
        torch.save(trainer.model.module.state_dict(), "/tmp/r84_shards_model.pt")
    print(f"[{rank}] training finished", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
