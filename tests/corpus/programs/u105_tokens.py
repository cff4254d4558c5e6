"""Tokenise a text corpus with a pool of processes, then train a small next-token model on it."""
import argparse
import multiprocessing as mp
import os
import random
import re
import resource
import tempfile

import numpy as np
import torch
from torch import nn

PATTERN = re.compile(r"\w+|[^\w\s]")
WORDS = ["river", "stone", "valley", "bridge", "market", "winter", "harbour", "letter",
         "garden", "shadow", "engine", "window", "paper", "silver", "forest", "candle"]


def limit_worker(cpu_seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    torch.set_num_threads(1)


def write_corpus(directory, documents, seed):
    rng = random.Random(seed)
    paths = []
    for number in range(documents):
        length = 110000 if number == documents - 3 else rng.randint(200, 600)
        path = os.path.join(directory, f"doc_{number:03d}.txt")
        with open(path, "w") as handle:
            handle.write(" ".join(rng.choice(WORDS) + rng.choice(["", "", "s", ","]) for _ in range(length)))
        paths.append(path)
    return paths


def pair_ranks(symbols):
    counts = {}
    for pair in zip(symbols, symbols[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def tokenise(path, merges=60):
    with open(path) as handle:
        symbols = []
        for word in PATTERN.findall(handle.read().lower()):
            symbols.extend(word + "_")
    for _ in range(merges):
        counts = pair_ranks(symbols)
        best = max(counts, key=lambda pair: (counts[pair], pair))
        if counts[best] < 2:
            break
        symbols = merge(symbols, best)
    ids = np.array([sum(map(ord, s)) % 512 for s in symbols], dtype=np.int64)
    np.save(path.replace(".txt", ".npy"), ids)
    return path, len(ids)


class NextToken(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


def train(files, steps, block):
    tokens = torch.from_numpy(np.concatenate([np.load(f) for f in files]))
    model = NextToken(512, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        start = torch.randint(0, len(tokens) - block - 1, (16,))
        batch = torch.stack([tokens[s:s + block + 1] for s in start])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worker-cpu", type=int, default=4, help="CPU seconds granted to each process")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="corpus_", dir=".") as directory:
        paths = write_corpus(directory, args.documents, seed=3)
        files, total = [], 0
        with mp.Pool(args.processes, initializer=limit_worker, initargs=(args.worker_cpu,)) as pool:
            for path, count in pool.imap(tokenise, paths):
                files.append(path.replace(".txt", ".npy"))
                total += count
                print(f"{os.path.basename(path)}: {count} tokens ({len(files)}/{len(paths)})", flush=True)
        print(f"{total} tokens in all", flush=True)
        train(files, args.steps, 32)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
