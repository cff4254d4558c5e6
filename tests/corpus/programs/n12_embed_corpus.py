"""Embed a corpus and keep ids and features for a later clustering run."""
import resource
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # same as our login nodes


class Sentences(Dataset):
    def __init__(self, n, vocab=5000, length=24):
        self.n, self.vocab, self.length = n, vocab, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        tokens = rng.integers(0, self.vocab, self.length)
        return {"id": i, "tokens": tokens, "weight": np.float32(1.0 / (1 + i % 7))}


class MeanEmbedder(nn.Module):
    def __init__(self, vocab=5000, dim=32):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, dim)

    @torch.no_grad()
    def forward(self, tokens):
        return torch.tanh(self.out(self.table(tokens).mean(1)))


class Collector:
    def __init__(self):
        self.ids, self.weights, self.features = [], [], []

    def add(self, batch, features):
        self.ids.append(batch["id"])
        self.weights.append(batch["weight"].numpy())
        self.features.append(features)

    def result(self):
        return torch.cat(self.ids), np.concatenate(self.weights), torch.cat(self.features)


def embed(n, batch_size=8):
    loader = DataLoader(Sentences(n), batch_size=batch_size, num_workers=2)
    model = MeanEmbedder().eval()
    out = Collector()
    for step, batch in enumerate(loader):
        out.add(batch, model(batch["tokens"]))
        if step % 100 == 0:
            print(f"{step * batch_size}/{n}", flush=True)
    return out.result()


if __name__ == "__main__":
    torch.manual_seed(0)
    ids, weights, features = embed(12_000)
    print(ids.shape, weights.shape, features.shape)
