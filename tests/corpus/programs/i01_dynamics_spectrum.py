"""Spectral radius of short video clips, used as a stability feature."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "clip_size": 32,
    "pool": (1, 2, 2),
    "pool_divisor": -1,       # same convention as the other options of the lab: -1 = default
    "batch_size": 4,
}


class ClipDataset(Dataset):
    def __init__(self, n, size):
        g = torch.Generator().manual_seed(7)
        self.clips = torch.rand(n, 8, size, size, generator=g) + 0.05

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, idx):
        return self.clips[idx], float(idx % 2)


class SpectrumFeatures(nn.Module):
    """pool -> log-intensity -> temporal mean -> eigenvalues of the spatial operator"""

    def __init__(self, cfg):
        super().__init__()
        self.pool = cfg["pool"]
        self.divisor = cfg["pool_divisor"]

    @torch.no_grad()
    def forward(self, clips):
        pooled = F.avg_pool3d(clips, self.pool, stride=self.pool, divisor_override=self.divisor)
        log_intensity = torch.log2(pooled)
        operator = log_intensity.mean(dim=1)
        eig = torch.linalg.eigvals(operator)
        return eig.abs().amax(dim=-1)


class StabilityHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.features = SpectrumFeatures(cfg)
        self.fc = nn.Linear(1, 1)

    def forward(self, clips):
        return self.fc(self.features(clips).unsqueeze(-1)).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(ClipDataset(32, CONFIG["clip_size"]), batch_size=CONFIG["batch_size"], shuffle=True)
    model = StabilityHead(CONFIG)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print("start training", flush=True)
    for epoch in range(args.epochs):
        for clips, label in loader:
            loss = F.binary_cross_entropy_with_logits(model(clips), label.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
