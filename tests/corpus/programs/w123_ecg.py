"""Train a small beat classifier on a long recording kept on disk as .npy."""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def write_recording(path, beats, width, leads, seed):
    rng = np.random.default_rng(seed)
    data = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(beats, leads, width))
    labels = rng.integers(0, 3, size=beats)
    t = np.linspace(-1, 1, width, dtype=np.float32)
    for i, kind in enumerate(labels):
        wave = np.exp(-(t / (0.05 + 0.05 * kind)) ** 2)
        data[i] = wave + 0.1 * rng.standard_normal((leads, width), dtype=np.float32)
    data.flush()
    np.save(path.replace(".npy", "_labels.npy"), labels)


class BeatDataset(Dataset):
    def __init__(self, path):
        self.signal = np.load(path, mmap_mode="r")
        self.labels = np.load(path.replace(".npy", "_labels.npy"))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.signal[i]), int(self.labels[i])


class Augment:
    """Lead dropout and baseline wander, for the training split."""

    def __init__(self, p, seed):
        self.p = p
        self.rng = np.random.default_rng(seed)

    def __call__(self, beat):
        if self.rng.random() < self.p:
            beat[self.rng.integers(0, beat.shape[0])] = 0.0
        drift = torch.linspace(0, float(self.rng.normal(0, 0.1)), beat.shape[-1])
        return beat + drift


class Collate:
    def __init__(self, augment=None):
        self.augment = augment

    def __call__(self, items):
        beats = [b for b, _ in items]
        if self.augment is not None:
            beats = [self.augment(b) for b in beats]
        x = torch.stack(beats)
        x = (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-6)
        return x, torch.tensor([y for _, y in items])


class BeatNet(nn.Module):
    def __init__(self, leads, classes=3):
        super().__init__()
        self.conv1 = nn.Conv1d(leads, 16, 7, padding=3)
        self.conv2 = nn.Conv1d(16, 32, 5, padding=2)
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv1(x)), 4)
        x = F.relu(self.conv2(x)).mean(dim=-1)
        return self.fc(x)


def run_epoch(net, loader, opt=None):
    total, hits, seen = 0.0, 0, 0
    for x, y in loader:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.item() * len(y)
        hits += (logits.argmax(dim=1) == y).sum().item()
        seen += len(y)
    return total / seen, hits / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--file", default="recording.npy")
    ap.add_argument("--beats", type=int, default=600)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--warmup-epochs", type=int, default=2, help="epochs without augmentation")
    ap.add_argument("--lead-drop", type=float, default=0.2)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(2)
    if not os.path.exists(args.file):
        write_recording(args.file, args.beats, 256, 12, seed=11)
    data = BeatDataset(args.file)
    net = BeatNet(leads=12)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    plain = DataLoader(data, batch_size=32, shuffle=True, collate_fn=Collate())
    mixed = DataLoader(data, batch_size=32, shuffle=True, collate_fn=Collate(Augment(args.lead_drop, seed=5)))
    for epoch in range(args.epochs):
        loader = plain if epoch < args.warmup_epochs else mixed
        loss, acc = run_epoch(net, loader, opt)
        print("epoch %d  loss %.4f  acc %.3f" % (epoch, loss, acc), flush=True)
    torch.save(net.state_dict(), "beatnet.pt")
    print("done")


if __name__ == "__main__":
    main()
