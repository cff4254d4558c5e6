import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 4096
REFRESH_STEP = 14


class FeatureStore:
    def __init__(self, folder):
        self.path = os.path.join(folder, "features.npy")

    def refresh(self, encoder, raw, keep):
        with torch.no_grad():
            feats = encoder(raw[keep]).numpy()
        np.save(self.path, feats)
        return len(feats)


class FeatureDataset(Dataset):
    def __init__(self, path, n):
        self.path, self.n = path, n
        self.feats = None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.feats is None:
            self.feats = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(self.feats[i])), i % 5


def hard_examples(losses, fraction):
    k = int(len(losses) * fraction)
    return torch.tensor(losses).topk(k).indices.sort().values


def main():
    torch.manual_seed(0)
    store = FeatureStore(tempfile.mkdtemp())
    raw = torch.randn(600, 64)
    encoder = nn.Linear(64, DIM)
    n = store.refresh(encoder, raw, torch.arange(len(raw)))
    data = FeatureDataset(store.path, n)
    loader = DataLoader(data, batch_size=20, num_workers=2, persistent_workers=True)
    head = nn.Linear(DIM, 5)
    opt = torch.optim.SGD(head.parameters(), lr=1e-3)
    for epoch in range(4):
        losses = []
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(head(x), y, reduction="none")
            opt.zero_grad()
            loss.mean().backward()
            opt.step()
            losses += loss.tolist()
            if epoch == 1 and step == REFRESH_STEP:
                keep = hard_examples(losses, 0.5)
                data.n = store.refresh(encoder, raw, keep)
                print(f"cache refreshed: {data.n} hard samples kept", flush=True)
        print(f"epoch {epoch}: {len(losses)} samples, loss {sum(losses) / len(losses):.3f}", flush=True)


if __name__ == "__main__":
    main()
