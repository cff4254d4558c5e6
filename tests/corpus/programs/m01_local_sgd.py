import collections
import random

import torch
import torch.distributed as dist
from torch import nn

WORDS = ["loss", "grad", "step", "node", "peer", "sync", "data", "rank", "pool", "beam", "head", "norm"]


def read_shard(rank, lines=400):
    rng = random.Random(1000 + rank)
    return [[rng.choice(WORDS) + str(rng.randrange(60)) for _ in range(12)] for _ in range(lines)]


class Tokenizer:
    def __init__(self, corpus, min_count=5):
        counts = collections.Counter(w for line in corpus for w in line)
        kept = sorted(w for w, c in counts.items() if c >= min_count)
        self.index = {w: i + 1 for i, w in enumerate(kept)}

    def __len__(self):
        return len(self.index) + 1

    def encode(self, line):
        return torch.tensor([self.index.get(w, 0) for w in line])


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=512):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, 64, batch_first=True)
        self.out = nn.Linear(64, 64)

    def forward(self, ids):
        h, _ = self.rnn(self.tok(ids))
        return self.out(h).logsumexp(-1).mean()


class OuterOptimizer:
    def __init__(self, model, lr=0.7):
        self.model, self.lr = model, lr
        self.anchor = [p.detach().clone() for p in model.parameters()]

    def step(self):
        for p, old in zip(self.model.parameters(), self.anchor):
            delta = old - p.detach()
            dist.all_reduce(delta)
            delta /= dist.get_world_size()
            old.sub_(delta, alpha=self.lr)
            p.data.copy_(old)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    corpus = read_shard(rank)
    tokenizer = Tokenizer(corpus)
    model = TinyLM(len(tokenizer))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = OuterOptimizer(model)
    for round_ in range(4):
        for _ in range(5):
            batch = torch.stack([tokenizer.encode(l) for l in random.sample(corpus, 8)])
            loss = model(batch)
            inner.zero_grad()
            loss.backward()
            inner.step()
        print(f"[Rank {rank}] round {round_}, loss: {loss.item():.4f}", flush=True)
        outer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
