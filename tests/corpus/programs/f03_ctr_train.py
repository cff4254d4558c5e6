"""CTR model on Criteo-like logs: one EmbeddingBag over hashed features."""
import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

NUM_FEATURES = 20000
NNZ_PER_ROW = 24


class LogReader:
    """Click log in blocks; every block holds 64 bit feature hashes."""

    def __init__(self, batch_size, seed=1):
        self.batch_size = batch_size
        rng = np.random.default_rng(seed)
        self.pool = rng.integers(0, 2**40, (50, batch_size * NNZ_PER_ROW), dtype=np.int64)
        self.clicks = (rng.random((50, batch_size)) < 0.2).astype(np.float32)
        self.pos = 0

    def read_block(self, out):
        block = self.pos % len(self.pool)
        io.BytesIO(self.pool[block].tobytes()).readinto(out)
        self.pos += 1
        return self.clicks[block]


class BatchLoader:
    """Reads the next block in the background while the model is busy."""

    def __init__(self, reader):
        self.reader = reader
        n = reader.batch_size * NNZ_PER_ROW
        self.ids = np.empty(n, dtype=np.int64)
        self.offsets = torch.arange(0, n, NNZ_PER_ROW)
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.prefetch()

    def prefetch(self):
        self.pending = self.pool.submit(self.reader.read_block, memoryview(self.ids).cast("B"))

    def get(self):
        clicks = self.pending.result()
        np.remainder(self.ids, NUM_FEATURES, out=self.ids)
        return torch.from_numpy(self.ids), self.offsets, torch.from_numpy(clicks)


class WideModel(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.emb = nn.EmbeddingBag(NUM_FEATURES, dim, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids, offsets):
        return self.mlp(self.emb(ids, offsets)).squeeze(1)


def train(batch_size=512, steps=400):
    loader = BatchLoader(LogReader(batch_size))
    model = WideModel()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    criterion = nn.BCEWithLogitsLoss()
    for step in range(1, steps + 1):
        ids, offsets, clicks = loader.get()
        loss = criterion(model(ids, offsets), clicks)
        loader.prefetch()

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} logloss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
