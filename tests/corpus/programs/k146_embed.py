"""Embed document shards in separate processes and merge the vectors into one index."""
import argparse
import multiprocessing as mp
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


class BagEncoder(nn.Module):
    def __init__(self, vocab=2000, dim=96):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens, offsets):
        return nn.functional.normalize(self.proj(self.emb(tokens, offsets)), dim=-1)


def load_shard(shard, docs, vocab=2000):
    rng = np.random.default_rng(shard)
    lengths = rng.integers(20, 60, size=docs)
    tokens = rng.integers(0, vocab, size=int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    ids = [f"s{shard:02d}d{i:04d}" for i in range(docs)]
    return ids, torch.from_numpy(tokens), torch.from_numpy(offsets)


def pretrain(encoder, docs, steps):
    opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    _, tokens, offsets = load_shard(999, docs)
    for step in range(steps):
        opt.zero_grad()
        vec = encoder(tokens, offsets)
        sim = vec @ vec.t()
        loss = (sim - torch.eye(len(vec))).pow(2).mean()
        loss.backward()
        opt.step()
    print(f"pretrain loss {loss.item():.5f}", flush=True)


def embed_shard(shard, docs, weights, results):
    torch.set_num_threads(1)
    encoder = BagEncoder()
    encoder.load_state_dict(torch.load(weights))
    encoder.eval()
    ids, tokens, offsets = load_shard(shard, docs)
    with torch.no_grad():
        vectors = encoder(tokens, offsets).numpy()
    results.put((shard, ids, vectors))
    print(f"shard {shard} embedded {vectors.shape}", flush=True)


class Index:
    def __init__(self):
        self.ids = []
        self.parts = []

    def add(self, ids, vectors):
        self.ids.extend(ids)
        self.parts.append(vectors)

    def query(self, vec, k=3):
        mat = np.concatenate(self.parts)
        best = np.argsort(-(mat @ vec))[:k]
        return [self.ids[i] for i in best]


def run_shards(shards, docs, weights):
    results = mp.Queue()
    procs = [mp.Process(target=embed_shard, args=(s, docs, weights, results)) for s in shards]
    for p in procs:
        p.start()
    for p in procs:
        p.join()
    return [results.get() for _ in procs]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--docs", type=int, default=400)
    ap.add_argument("--shards", type=int, default=4)
    ap.add_argument("--steps", type=int, default=15)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    encoder = BagEncoder()
    pretrain(encoder, 64, args.steps)
    weights = os.path.join(tempfile.mkdtemp(prefix="embed_"), "encoder.pt")
    torch.save(encoder.state_dict(), weights)

    index = Index()
    trial = run_shards([100, 101], 16, weights)
    for _, ids, vectors in trial:
        index.add(ids, vectors)
    print(f"trial run: {len(index.ids)} vectors", flush=True)

    for shard, ids, vectors in sorted(run_shards(range(args.shards), args.docs, weights), key=lambda r: r[0]):
        index.add(ids, vectors)
    print(f"index holds {len(index.ids)} vectors")
    print("nearest:", index.query(index.parts[0][0]))


if __name__ == "__main__":
    main()
