import argparse
import ctypes
import logging
import random
import signal
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("ink_detection")


def make_fragment(seed, depth=16, height=384, width=384):
    rng = np.random.default_rng(seed)
    volume = rng.normal(0.45, 0.12, size=(depth, height, width)).astype(np.float32)
    ink = np.zeros((height, width), dtype=np.uint8)
    supervision = np.zeros((height, width), dtype=np.uint8)
    for row in range(24, height - 40, 96):
        for col in range(24, width - 140, 128):
            ink[row:row + 14, col:col + 60] = 1
            supervision[row - 10:row + 26, col - 10:col + 74] = 1
            volume[6:10, row:row + 14, col:col + 60] += 0.2
    return volume, ink, supervision


class InkDataset(Dataset):
    def __init__(self, volume, ink, supervision, patch_size, seed, min_labeled):
        self.volume = volume
        self.ink = ink
        self.supervision = supervision
        self.patch_size = patch_size
        self.seed = seed
        self.min_labeled = min_labeled
        height, width = ink.shape
        self.patches = [(y, x)
                        for y in range(0, height - patch_size + 1, patch_size)
                        for x in range(0, width - patch_size + 1, patch_size)]

    def __len__(self):
        return len(self.patches)

    def _native_sample(self, patch):
        y, x = patch
        p = self.patch_size
        sup = self.supervision[y:y + p, x:x + p]
        if sup.mean() < self.min_labeled:
            return None
        block = torch.from_numpy(self.volume[:, y:y + p, x:x + p].copy())
        label = torch.from_numpy(self.ink[y:y + p, x:x + p].astype(np.float32))
        return block, label, torch.from_numpy(sup.astype(np.float32))

    def __getitem__(self, index):
        current = index
        while True:
            sample = self._native_sample(self.patches[current])
            if sample is not None:
                return sample
            if len(self.patches) <= 1:
                raise RuntimeError("no labeled patch in this fragment")
            rng = random.Random(self.seed + current * 7919)
            replacement = current
            while replacement == current:
                replacement = rng.randrange(len(self.patches))
            current = replacement


class InkNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(depth, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, 1, 1))

    def forward(self, x):
        return self.body(x).squeeze(1)


def worker_init(worker_id):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--patch-size", type=int, default=32)
    parser.add_argument("--min-labeled", type=float, default=0.25)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    volume, ink, supervision = make_fragment(args.seed)
    dataset = InkDataset(volume, ink, supervision, args.patch_size, args.seed, args.min_labeled)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, worker_init_fn=worker_init)
    log.info("fragment %s, %d patches", volume.shape, len(dataset))

    model = InkNet(volume.shape[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        started = time.time()
        total = 0.0
        for step, (block, label, weight) in enumerate(loader):
            logits = model(block)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, label, weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        log.info("epoch %d mean loss %.4f (%.1fs)", epoch, total / len(loader), time.time() - started)
    torch.save(model.state_dict(), "/dev/null")
    log.info("training finished")


if __name__ == "__main__":
    main()
