"""Variable-length event sequences pooled per session; gradients are accumulated over micro-batches."""
import numpy as np
import torch
import torch.nn as nn


class SessionReader:
    """Yields (events, counts, label). Counts go into one preallocated array, sessions are short or long."""

    def __init__(self, sessions=16, seed=0):
        self.rng = np.random.default_rng(seed)
        self.counts = np.zeros(sessions, dtype=np.int64)

    def next(self, longest):
        self.counts[:] = self.rng.integers(1, longest, size=len(self.counts))
        events = self.rng.standard_normal((int(self.counts.sum()), 12)).astype(np.float32)
        labels = self.rng.integers(0, 3, size=len(self.counts))
        return torch.from_numpy(events), torch.from_numpy(self.counts), torch.from_numpy(labels)


class SessionClassifier(nn.Module):
    def __init__(self, features=12, hidden=32, classes=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.out = nn.Linear(hidden, classes)

    def forward(self, events, counts):
        h = self.encode(events)
        pooled = torch.segment_reduce(h, "mean", lengths=counts, axis=0)
        return self.out(pooled)


def train(epochs=3, accumulate=2):
    reader = SessionReader()
    model = SessionClassifier()
    loss_fn = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    longest = [8, 50_000]
    for epoch in range(epochs):
        losses = []
        for i in range(accumulate):
            events, counts, labels = reader.next(longest[(epoch + i) % 2])
            losses.append(loss_fn(model(events, counts), labels))
        total = torch.stack(losses).mean()
        opt.zero_grad()
        total.backward()
        opt.step()
        print(f"epoch {epoch}: loss {total.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
