"""Segmentation masks are kept run-length encoded on disk and expanded per batch."""
import os
import tempfile
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64


def encode_rows(mask):
    """Runs never cross a row, the way the labelling tool stores them."""
    values, runs = [], []
    for row in mask:
        cuts = np.flatnonzero(np.diff(row)) + 1
        bounds = np.concatenate([[0], cuts, [row.size]])
        values += [row[b] for b in bounds[:-1]]
        runs += list(np.diff(bounds))
    return np.array(values, dtype=np.uint8), np.array(runs)


def export_labels(folder, n, seed=0):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIDE, :SIDE]
    for i in range(n):
        cy, cx, r = rng.uniform(16, 48), rng.uniform(16, 48), rng.uniform(6, 15)
        mask = ((yy - cy) ** 2 + (xx - cx) ** 2 < r * r).astype(np.uint8)
        values, runs = encode_rows(mask)
        values.tofile(os.path.join(folder, f"{i:04d}.val"))
        runs.astype(">i8").tofile(os.path.join(folder, f"{i:04d}.run"))


class MaskDataset(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".run"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        base = os.path.join(self.folder, self.names[i])
        values = torch.from_numpy(np.fromfile(base + ".val", dtype=np.uint8))
        runs = torch.from_numpy(np.fromfile(base + ".run", dtype=np.int64))
        return values, runs


def expand(batch):
    masks = [torch.repeat_interleave(values, runs).view(1, SIDE, SIDE) for values, runs in batch]
    masks = torch.stack(masks).float()
    noisy = masks + 0.3 * torch.randn_like(masks)
    return noisy, masks


def main():
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="labels_")
    export_labels(folder, 64)
    loader = DataLoader(MaskDataset(folder), batch_size=8, shuffle=True, collate_fn=expand)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    print(len(loader.dataset), "labelled images in", folder, flush=True)
    for epoch in range(2):
        for noisy, mask in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(noisy), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
