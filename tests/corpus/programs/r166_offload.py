"""Fine-tunes a text classifier whose input embeddings stay on disk, shared by the processes.

    torchrun --standalone --nproc-per-node 2 r166_offload.py
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

DIM = 64


class Texts:
    def __init__(self, vocab, classes, rank):
        self.gen = torch.Generator().manual_seed(300 + rank)
        self.vocab, self.classes = vocab, classes

    def batch(self, n=16, length=20):
        label = torch.randint(0, self.classes, (n,), generator=self.gen)
        tokens = torch.randint(0, self.vocab // self.classes, (n, length), generator=self.gen)
        return tokens * self.classes + label[:, None], label


class Tagger(nn.Module):
    """Small model that is trained first and gives the table its directions."""

    def __init__(self, classes):
        super().__init__()
        self.direction = nn.Embedding(classes, DIM)
        self.out = nn.Linear(DIM, classes)

    def forward(self, tokens):
        return self.out(self.direction(tokens % self.direction.num_embeddings).mean(dim=1))


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.hidden = nn.Linear(DIM, 48)
        self.out = nn.Linear(48, classes)

    def forward(self, vectors):
        return self.out(F.gelu(self.hidden(vectors.mean(dim=1))))


def embedding_table(vocab, direction, chunk=2000):
    gen = torch.Generator().manual_seed(12)
    rows = []
    for start in range(0, vocab, chunk):
        ids = torch.arange(start, min(start + chunk, vocab))
        base = direction[ids % len(direction)]
        noise = torch.randn(len(ids), 6, DIM, generator=gen).cumsum(dim=1)[:, -1]
        rows.append(F.normalize(base + 0.5 * noise, dim=1))
    return torch.cat(rows)


class OffloadedEmbedding:
    def __init__(self, path, vocab, direction):
        if dist.get_rank() == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                torch.save(embedding_table(vocab, direction), f)
        else:
            while not os.path.exists(path):
                time.sleep(0.05)
        self.weight = torch.load(path, mmap=True)

    def __call__(self, tokens):
        return self.weight[tokens]


def fit(model, features, texts, steps, lr, name):
    net = DDP(model)
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    for step in range(steps):
        tokens, label = texts.batch()
        loss = F.cross_entropy(net(features(tokens)), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"{name} step {step} loss {loss.item():.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=160000)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--cache", default=f"offload_{os.environ.get('TORCHELASTIC_RUN_ID', '0')[:8]}")
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    texts = Texts(args.vocab, args.classes, dist.get_rank())
    tagger = Tagger(args.classes)
    fit(tagger, lambda tokens: tokens, texts, args.steps, 2e-2, "tagger")
    path = os.path.join(args.cache, "input_embeddings.pt")
    embed = OffloadedEmbedding(path, args.vocab, tagger.direction.weight.detach())
    fit(Classifier(args.classes), embed, texts, args.steps, 3e-3, "classifier")
    dist.barrier()
    if dist.get_rank() == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
