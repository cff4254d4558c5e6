import ctypes
import os
import random
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
TOPICS = ["port", "rail", "storm", "vote", "court", "match", "trade", "clinic"]


def build_mover(workdir):
    so = os.path.join(workdir, "libmover.so")
    subprocess.check_call(["g++", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "a193_mover_eval.cpp"), "-o", so])
    lib = ctypes.CDLL(so)
    dp = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
    lib.mover_distance.argtypes = [dp, dp, ctypes.c_int, dp, ctypes.c_int, ctypes.c_int]
    lib.mover_distance.restype = ctypes.c_double
    return lib


class Vocabulary:
    def __init__(self):
        self.index = {}

    def __len__(self):
        return len(self.index)

    def encode(self, tokens):
        return [self.index.setdefault(t, len(self.index)) for t in tokens]


def make_reports(n, start, words_per_topic, seed):
    rng = random.Random(seed)
    reports = []
    for _ in range(n):
        t = rng.randrange(len(TOPICS))
        tokens = [f"{TOPICS[t]}_{start + rng.randrange(words_per_topic)}" for _ in range(18)]
        tokens += [f"common_{rng.randrange(60)}" for _ in range(6)]
        reports.append((tokens, t))
    return reports


class BagEncoder(nn.Module):
    def __init__(self, capacity, dim=32, classes=len(TOPICS)):
        super().__init__()
        self.embed = nn.Embedding(capacity, dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, ids):
        return self.out(self.embed(ids).mean(dim=1))


def histogram(ids, size):
    h = np.bincount(np.asarray(ids), minlength=size).astype(np.float64)
    return h / h.sum()


@torch.no_grad()
def word_distances(model, size):
    e = model.embed.weight[:size]
    return torch.cdist(e, e).double().numpy()


def neighbour_accuracy(lib, dist, vocab, queries, refs):
    hits = 0
    for ids, topic in queries:
        q = histogram(ids, len(vocab))
        scores = []
        for ref_ids, ref_topic in refs:
            r = histogram(ref_ids, len(vocab))
            scores.append((lib.mover_distance(q, r, len(vocab), dist, *dist.shape), ref_topic))
        hits += min(scores)[1] == topic
    return hits / len(queries)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="mover_") as work:
        lib = build_mover(work)
        vocab = Vocabulary()
        train = [(vocab.encode(t), y) for t, y in make_reports(1200, 0, 40, seed=1)]
        vocab_size = len(vocab)
        print(f"{len(train)} training reports, {vocab_size} words", flush=True)

        model = BagEncoder(capacity=4096)
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        x = torch.tensor([ids for ids, _ in train])
        y = torch.tensor([t for _, t in train])
        for epoch in range(12):
            perm = torch.randperm(len(train))
            for chunk in perm.split(64):
                loss = F.cross_entropy(model(x[chunk]), y[chunk])
                opt.zero_grad()
                loss.backward()
                opt.step()
            if epoch % 4 == 3:
                print(f"epoch {epoch + 1} loss {loss.item():.4f}", flush=True)

        refs = train[:24]
        dist = word_distances(model, vocab_size)
        for month, start in (("march", 0), ("april", 0), ("june", 30)):
            queries = [(vocab.encode(t), y) for t, y in make_reports(12, start, 40, seed=len(month) + 20)]
            acc = neighbour_accuracy(lib, dist, vocab, queries, refs)
            print(f"{month}: 1-NN topic accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
