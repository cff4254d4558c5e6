import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)


class Batch:
    def __init__(self, rng, molecules):
        self.counts = rng.integers(200, 900, molecules).astype(np.int64)
        self.atoms = torch.from_numpy(rng.standard_normal((int(self.counts.sum()), 24)).astype(np.float32))
        self.lengths = torch.from_numpy(self.counts)
        self.energy = torch.from_numpy(rng.standard_normal((molecules, 1)).astype(np.float32))


class Energy(nn.Module):
    def __init__(self, dim=24, hidden=64):
        super().__init__()
        self.atom = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.read = nn.Linear(hidden, 1)

    def forward(self, atoms, lengths):
        h = self.atom(atoms)
        pooled = torch.segment_reduce(h, "mean", lengths=lengths, axis=0)
        return self.read(pooled)


class History:
    """Remembers where each molecule of a batch begins, for the plots."""

    def __init__(self):
        self.ends = []

    def note(self, counts):
        ends = np.cumsum(counts, out=counts)
        self.ends.append(ends)
        return int(ends[-1])


def train(steps):
    rng = np.random.default_rng(0)
    model, history = Energy(), History()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = Batch(rng, molecules=96)
        loss = (model(batch.atoms, batch.lengths) - batch.energy).square().mean()
        atoms = history.note(batch.counts)
        print("step", step, atoms, "atoms, loss", round(loss.item(), 4), flush=True)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    train(steps=5)
