"""Episodic few-shot training with prototypes; images are read from one raw file a class."""
import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 160
MEAN = np.array([0.47, 0.45, 0.40], dtype=np.float32)[:, None, None]
STD = np.array([0.28, 0.27, 0.29], dtype=np.float32)[:, None, None]


def limit_memory(megabytes):
    """The login node is shared: keep this process within its share of the memory."""
    if megabytes:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def write_classes(root, classes, per_class):
    rng = np.random.default_rng(0)
    for c in range(classes):
        base = rng.integers(30, 226, size=(3, 1, 1))
        with open(root / f"class_{c:03d}.raw", "wb") as f:
            for _ in range(per_class):
                shot = base + rng.integers(-30, 30, size=(3, SIDE // 8, SIDE // 8))
                f.write(shot.astype(np.uint8).repeat(8, axis=1).repeat(8, axis=2).tobytes())


class ClassFolder:
    """Images of one split, addressed by (class, number)."""

    def __init__(self, root, per_class, memoize=True):
        self.files = sorted(root.glob("class_*.raw"))
        self.per_class = per_class
        self.memoize = memoize
        self.memory = {}

    def __len__(self):
        return len(self.files) * self.per_class

    def read(self, label, number):
        size = 3 * SIDE * SIDE
        raw = np.fromfile(self.files[label], dtype=np.uint8, count=size, offset=number * size)
        return (raw.reshape(3, SIDE, SIDE).astype(np.float32) / 255 - MEAN) / STD

    def image(self, label, number):
        if not self.memoize:
            return self.read(label, number)
        key = (label, number)
        if key not in self.memory:
            self.memory[key] = self.read(label, number)
        return self.memory[key]


class EpisodeSampler:
    def __init__(self, data, way, shot, query, seed):
        self.data, self.way, self.shot, self.query = data, way, shot, query
        self.rng = np.random.default_rng(seed)

    def draw(self):
        labels = self.rng.choice(len(self.data.files), size=self.way, replace=False)
        support, query = [], []
        for label in labels:
            numbers = self.rng.choice(self.data.per_class, size=self.shot + self.query, replace=False)
            images = [self.data.image(label, n) for n in numbers]
            support += images[: self.shot]
            query += images[self.shot:]
        target = torch.arange(self.way).repeat_interleave(self.query)
        return torch.from_numpy(np.stack(support)), torch.from_numpy(np.stack(query)), target


def block(inside, outside, stride):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride=stride, padding=1), nn.BatchNorm2d(outside), nn.ReLU())


class Embedding(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.AvgPool2d(4), block(3, width, 1), block(width, width, 2), block(width, 2 * width, 2))

    def forward(self, x):
        return self.body(x).flatten(2).mean(-1)


def episode_loss(model, support, query, target, way):
    prototypes = model(support).view(way, -1, 32).mean(1)
    logits = -torch.cdist(model(query), prototypes)
    return F.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=64)
    parser.add_argument("--per-class", type=int, default=48)
    parser.add_argument("--way", type=int, default=5)
    parser.add_argument("--shot", type=int, default=5)
    parser.add_argument("--query", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=80)
    parser.add_argument("--memory-mb", type=int, default=1200)
    args = parser.parse_args()
    limit_memory(args.memory_mb)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fewshot-") as folder:
        root = Path(folder)
        write_classes(root, args.classes, args.per_class)
        data = ClassFolder(root, args.per_class)
        sampler = EpisodeSampler(data, args.way, args.shot, args.query, seed=1)
        model = Embedding()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        print(f"{len(data)} images of {len(data.files)} classes", flush=True)
        start, right = time.time(), 0.0
        for episode in range(1, args.episodes + 1):
            support, query, target = sampler.draw()
            loss, accuracy = episode_loss(model, support, query, target, args.way)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += accuracy
            if episode % 5 == 0:
                print(f"episode {episode} loss {loss.item():.3f} accuracy {right / 5:.3f} {time.time() - start:.1f}s", flush=True)
                right = 0.0
        torch.save(model.state_dict(), root / "embedding.pt")
        print("finished", flush=True)


if __name__ == "__main__":
    main()
