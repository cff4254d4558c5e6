import numpy as np
import torch
import torch.nn as nn

ROWS, BATCH, PER = 5000, 256, 24
rng = np.random.default_rng(11)


class ClickLog:
    """Reads the clicks in blocks, into one array; the ids are hashed by remainder."""

    def __init__(self):
        self.raw = np.empty(BATCH * PER, dtype=np.int64)
        self.offsets = torch.arange(0, BATCH * PER, PER)
        self.read()

    def read(self):
        self.raw[:] = rng.integers(1 << 36, 1 << 40, self.raw.size)

    def current(self):
        np.remainder(self.raw, ROWS, out=self.raw)
        y = torch.from_numpy(rng.random(BATCH).astype(np.float32))
        return torch.from_numpy(self.raw), self.offsets, y


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(ROWS, 32, mode="sum")
        self.out = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, offsets):
        return self.out(self.items(ids, offsets)).squeeze(1)


def train(model, log, steps):
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step in range(steps):
        ids, offsets, y = log.current()
        loss = nn.functional.mse_loss(model(ids, offsets), y)
        opt.zero_grad()
        log.read()
        loss.backward()
        opt.step()
        print("step", step, loss.item(), flush=True)


train(Ranker(), ClickLog(), 12)
