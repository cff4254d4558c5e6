"""Fine-tuning of a small language model on licence texts.

torchrun --standalone --nproc-per-node 2 v115_tokenize.py --documents 9000
"""
import argparse
import os
import random
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS = ("permission is hereby granted free of charge to any person obtaining a copy of this software "
         "and associated documentation files the rights to use modify merge publish distribute").split()


@contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def load_documents(n, seed=4):
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(40, 120))) for _ in range(n)]


def learn_merges(documents, n_merges):
    words = Counter(w for d in documents for w in d.split())
    pieces = {w: list(w) for w in words}
    merges = []
    for _ in range(n_merges):
        pairs = Counter()
        for w, count in words.items():
            for a, b in zip(pieces[w], pieces[w][1:]):
                pairs[a, b] += count
        if not pairs:
            break
        best = max(sorted(pairs), key=pairs.get)
        merges.append(best)
        for w in words:
            pieces[w] = apply_merge(pieces[w], best)
    return merges


def apply_merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def tokenize(documents, merges, vocab):
    ids = []
    for n, text in enumerate(documents):
        for word in text.split():
            symbols = list(word)
            for pair in merges:
                symbols = apply_merge(symbols, pair)
            ids.extend(vocab.setdefault(s, len(vocab)) for s in symbols)
        if n % 1000 == 0:
            print(f"[rank 0] tokenized {n}/{len(documents)} documents", flush=True)
    return torch.tensor(ids)


def prepare(args, rank):
    cache = os.path.join(args.cache_dir, f"tokens_{args.documents}.pt")
    with main_process_first(rank):
        if not os.path.exists(cache):
            os.makedirs(args.cache_dir, exist_ok=True)
            documents = load_documents(args.documents)
            vocab = {}
            ids = tokenize(documents, learn_merges(documents, args.merges), vocab)
            torch.save({"ids": ids, "vocab": vocab}, cache)
        stored = torch.load(cache)
    return stored["ids"], len(stored["vocab"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=9000)
    parser.add_argument("--merges", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cache-dir", default="token_cache")
    parser.add_argument("--ddp-timeout", type=int, default=10)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.ddp_timeout))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ids, vocab_size = prepare(args, rank)
    print(f"[rank {rank}] {ids.numel()} tokens, vocabulary {vocab_size}", flush=True)

    model = DDP(nn.Sequential(nn.Embedding(vocab_size, 48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, vocab_size)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shard = ids[rank::world_size]
    for step in range(args.steps):
        at = step * 256 % (shard.numel() - 257)
        loss = F.cross_entropy(model(shard[at:at + 256]), shard[at + 1:at + 257])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"[rank {rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
