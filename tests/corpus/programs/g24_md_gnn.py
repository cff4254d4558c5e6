import os
import sys

import torch
import torch.nn as nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "g24_ext"))
import neighbors  # noqa: E402  (built with g24_ext/setup.py)


class PairEnergy(nn.Module):
    """Sum of learned pair energies, invariant to rotation."""

    def __init__(self, n_rbf=16, cutoff=3.0):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centers", torch.linspace(0, cutoff, n_rbf))
        self.mlp = nn.Sequential(nn.Linear(n_rbf, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, pos):
        pairs = neighbors.radius_pairs(pos.detach(), self.cutoff)
        src, dst = pairs[:, 0], pairs[:, 1]
        r = (pos[src] - pos[dst]).norm(dim=1)
        rbf = torch.exp(-10 * (r.unsqueeze(1) - self.centers) ** 2)
        return self.mlp(rbf).sum()


class Trajectory(torch.utils.data.Dataset):
    def __init__(self, n_frames=20, n_atoms=4000, box=8.0):
        g = torch.Generator().manual_seed(0)
        start = box * torch.rand(n_atoms, 3, generator=g)
        noise = 0.02 * torch.randn(n_frames, n_atoms, 3, generator=g)
        self.pos = start + noise.cumsum(0)
        self.energy = self.pos.pow(2).sum(dim=(1, 2)) / n_atoms

    def __len__(self):
        return len(self.pos)

    def __getitem__(self, i):
        return self.pos[i], self.energy[i]


def train(model, dataset, epochs=2):
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        total = 0.0
        for i in torch.randperm(len(dataset)).tolist():
            pos, energy = dataset[i]
            loss = (model(pos) / len(pos) - energy).pow(2)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(dataset):.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    print("extension loaded", flush=True)
    train(PairEnergy(), Trajectory())
