"""Preference tuning of a small ranker; the pairs are tokenized once, by the main process."""
import argparse
import contextlib
import datetime
import os
import random
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_LENGTH = 48
WORDS = ("please thank kindly never always answer question model paper result table figure "
         "error value reason simple clear polite short long detailed wrong correct maybe").split()


@contextlib.contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


class PairTokenizer:
    """Byte pair merges learned from a sample of the texts."""

    def __init__(self, merges=60):
        self.merges = merges
        self.ranks = {}

    def train(self, texts):
        sequences = [list(text) for text in texts]
        for number in range(self.merges):
            pairs = Counter(p for seq in sequences for p in zip(seq, seq[1:]))
            best = pairs.most_common(1)[0][0]
            self.ranks[best] = number
            sequences = [self.merge(seq, best) for seq in sequences]
        self.vocab = {t: i + 1 for i, t in enumerate(sorted({t for s in sequences for t in s} | set("".join(texts))))}

    @staticmethod
    def merge(seq, pair):
        out, i = [], 0
        while i < len(seq):
            if i + 1 < len(seq) and (seq[i], seq[i + 1]) == pair:
                out.append(seq[i] + seq[i + 1])
                i += 2
            else:
                out.append(seq[i])
                i += 1
        return out

    def encode(self, text):
        seq = list(text)
        for pair in self.ranks:
            seq = self.merge(seq, pair)
        ids = [self.vocab.get(t, 0) for t in seq][:MAX_LENGTH]
        return ids + [0] * (MAX_LENGTH - len(ids))


def preference_pairs(count):
    rng = random.Random(17)
    return [(" ".join(rng.choices(WORDS[:12], k=16)), " ".join(rng.choices(WORDS[12:], k=16))) for _ in range(count)]


class Ranker(nn.Module):
    def __init__(self, vocab, width=32):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, width, padding_idx=0)
        self.score = nn.Linear(width, 1)

    def forward(self, ids):
        return self.score(self.embed(ids)).squeeze(-1)


def load_tokenized(args, rank):
    cache = os.path.join(args.cache_dir, f"pairs_{args.pairs}.pt")
    with main_process_first(rank):
        if not os.path.exists(cache):
            pairs = preference_pairs(args.pairs)
            tokenizer = PairTokenizer()
            tokenizer.train([text for pair in pairs[:200] for text in pair])
            rows = []
            for number, (chosen, rejected) in enumerate(pairs):
                rows.append([tokenizer.encode(chosen), tokenizer.encode(rejected)])
                if number % 2000 == 0:
                    print(f"[rank {rank}] tokenizing {number}/{len(pairs)}", flush=True)
            torch.save({"rows": torch.tensor(rows), "vocab": len(tokenizer.vocab) + 1}, cache)
    return torch.load(cache)


def train(args, rank, world, data):
    torch.manual_seed(5)
    model = DDP(Ranker(data["vocab"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = data["rows"][rank::world]
    for step in range(args.steps):
        batch = rows[torch.randint(0, len(rows), (64,))]
        scores = model(batch.flatten(0, 1)).view(-1, 2)
        loss = -F.logsigmoid(scores[:, 0] - scores[:, 1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=14000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--timeout", type=int, default=8, help="seconds for collective operations")
    parser.add_argument("--cache-dir", default=".")
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    small = load_tokenized(argparse.Namespace(pairs=400, cache_dir=args.cache_dir), rank)
    train(args, rank, world, small)
    train(args, rank, world, load_tokenized(args, rank))
    if rank == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
