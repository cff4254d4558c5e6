"""Sentence-pair ranking, data parallel.  torchrun --nproc-per-node 2 p151_corpus.py"""
import argparse
import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def build_corpus(n_docs, vocab, seed):
    rng = random.Random(seed)
    corpus = []
    for doc in range(n_docs):
        length = rng.randint(8, 24)
        tokens = [rng.randrange(vocab) for _ in range(length)]
        corpus.append((tokens, float(sum(tokens) % 7 > 3)))
    return corpus


class PairStream(IterableDataset):
    def __init__(self, corpus, rank, world_size, max_len):
        self.records = corpus[rank::world_size]
        self.max_len = max_len

    def __iter__(self):
        for tokens, label in self.records:
            ids = torch.zeros(self.max_len, dtype=torch.long)
            ids[:len(tokens)] = torch.tensor(tokens[:self.max_len])
            yield ids, torch.tensor(label)


class Ranker(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, ids):
        hidden, _ = self.encoder(self.embed(ids))
        return self.head(hidden.mean(dim=1)).squeeze(-1)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        torch.manual_seed(args.seed)
        corpus = build_corpus(args.docs, args.vocab, args.seed)
        stream = PairStream(corpus, self.rank, self.world_size, args.max_len)
        self.loader = DataLoader(stream, batch_size=args.batch_size)
        self.model = DDP(Ranker(args.vocab))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.history = []

    def log(self, text):
        print(f"[rank {self.rank}] {text}", flush=True)

    def train_epoch(self, epoch):
        self.model.train()
        total, steps = 0.0, 0
        for ids, labels in self.loader:
            logits = self.model(ids)
            loss = self.loss_fn(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            steps += 1
            if steps % 4 == 0:
                self.log(f"epoch {epoch} step {steps} loss {total / steps:.4f}")
        return total / max(steps, 1)

    def save(self, epoch):
        dist.barrier()
        if self.rank == 0:
            os.makedirs(self.args.out, exist_ok=True)
            path = os.path.join(self.args.out, f"ranker-{epoch}.pt")
            torch.save(self.model.module.state_dict(), path)
            self.log(f"wrote {path}")
        dist.barrier()

    def fit(self):
        for epoch in range(self.args.epochs):
            mean = self.train_epoch(epoch)
            self.history.append(mean)
            self.save(epoch)
            self.log(f"epoch {epoch} done, loss {mean:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--docs", type=int, default=513)
    parser.add_argument("--vocab", type=int, default=400)
    parser.add_argument("--max-len", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", default="ranker_ckpt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer(args)
    trainer.fit()
    if trainer.rank == 0:
        print("losses", [round(x, 4) for x in trainer.history])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
