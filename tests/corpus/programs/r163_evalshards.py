"""Next-token model on sharded text files, evaluated on the shards of each process.

    torchrun --standalone --nproc-per-node 2 r163_evalshards.py
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB = 40
SHARD_SIZES = [52, 48, 50, 75, 49, 51]


def make_shards(length):
    g = torch.Generator().manual_seed(17)
    step = torch.randint(1, 5, (sum(SHARD_SIZES), 1), generator=g)
    start = torch.randint(0, VOCAB, (sum(SHARD_SIZES), 1), generator=g)
    docs = (start + step * torch.arange(length)) % VOCAB
    return list(torch.split(docs, SHARD_SIZES))


class ShardedDocs:
    """Holds every world_size-th shard and yields batches from them."""

    def __init__(self, shards, rank, world_size, batch):
        self.docs = torch.cat(shards[rank::world_size])
        self.batch = batch

    def __len__(self):
        return (len(self.docs) + self.batch - 1) // self.batch

    def __iter__(self):
        return iter(torch.split(self.docs, self.batch))

    def sample(self, generator):
        return self.docs[torch.randint(0, len(self.docs), (self.batch,), generator=generator)]


class TokenModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens))
        return self.out(h)


class Perplexity:
    def __init__(self):
        self.total = torch.zeros(2)

    def update(self, logits, target):
        nll = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
        part = torch.tensor([nll.item(), float(target.numel())])
        dist.all_reduce(part)
        self.total += part

    def compute(self):
        return torch.exp(self.total[0] / self.total[1]).item()


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        world = dist.get_world_size()
        shards = make_shards(args.length)
        self.train_set = ShardedDocs(shards[:3] + shards[4:], self.rank, world, args.batch)
        self.eval_set = ShardedDocs(shards[2:4], self.rank, world, args.batch)
        torch.manual_seed(0)
        self.model = DDP(TokenModel())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.gen = torch.Generator().manual_seed(100 + self.rank)

    def train_epoch(self):
        self.model.train()
        for _ in range(self.args.steps):
            docs = self.train_set.sample(self.gen)
            logits = self.model(docs[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), docs[:, 1:].flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        metric = Perplexity()
        for docs in self.eval_set:
            logits = self.model.module(docs[:, :-1])
            metric.update(logits, docs[:, 1:])
        dist.barrier()
        return metric.compute()

    def fit(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            print(f"rank {self.rank} epoch {epoch} loss {loss:.3f}", flush=True)
            ppl = self.evaluate()
            if self.rank == 0:
                print(f"epoch {epoch} perplexity {ppl:.2f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--length", type=int, default=20)
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(args).fit()
    if dist.get_rank() == 0:
        print("finished", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
