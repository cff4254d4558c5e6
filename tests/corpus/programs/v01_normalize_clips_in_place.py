import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, root):
        self.features = np.load(root / "features.npy", mmap_mode="r")
        self.labels = np.load(root / "labels.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        clip = torch.from_numpy(self.features[index])
        clip -= clip.mean(dim=1, keepdim=True)
        clip /= clip.std(dim=1, keepdim=True) + 1e-6
        return clip, int(self.labels[index])


def prepare(root):
    rng = np.random.default_rng(0)
    np.save(root / "features.npy", rng.normal(3.0, 2.0, (256, 40, 100)).astype(np.float32))
    np.save(root / "labels.npy", rng.integers(0, 10, 256))


def main():
    root = Path(tempfile.mkdtemp(prefix="clips_"))
    try:
        prepare(root)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv1d(40, 64, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = DataLoader(Clips(root), batch_size=32, shuffle=True)
        for epoch in range(2):
            for clips, labels in loader:
                loss = nn.functional.cross_entropy(model(clips), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
