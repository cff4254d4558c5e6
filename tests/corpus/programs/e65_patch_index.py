"""Index image patches with a pool of worker processes, then train on them.

Every worker takes a slide from the job queue, tiles it, keeps the patches with
enough tissue and appends them to its own shard on disk.
"""
import glob
import logging
import multiprocessing as mp
import os
import shutil
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORK = "/tmp/e65_patch_index"
SLIDES, SHARDS = os.path.join(WORK, "slides"), os.path.join(WORK, "shards")
PATCH = 32
WORKERS = 3
log = logging.getLogger("patches")


def make_slides(n, seed=0):
    rng = np.random.default_rng(seed)
    os.makedirs(SLIDES, exist_ok=True)
    for i in range(n):
        h, w = rng.integers(4, 9, size=2) * PATCH
        img = rng.random((h, w), dtype=np.float32) * 0.2 + 0.8
        for _ in range(int(rng.integers(0, 6))):
            y, x, r = rng.integers(0, h), rng.integers(0, w), rng.integers(20, 60)
            yy, xx = np.ogrid[:h, :w]
            img[(yy - y) ** 2 + (xx - x) ** 2 < r * r] *= 0.5
        np.savez_compressed(os.path.join(SLIDES, f"slide_{i:03d}.npz"), image=img, grade=int(i % 3))


class Tiler:
    def __init__(self, tissue_level=0.7, min_fraction=0.3):
        self.tissue_level = tissue_level
        self.min_fraction = min_fraction

    def tiles(self, image):
        h, w = image.shape
        grid = image[: h // PATCH * PATCH, : w // PATCH * PATCH]
        grid = grid.reshape(h // PATCH, PATCH, w // PATCH, PATCH).transpose(0, 2, 1, 3)
        return grid.reshape(-1, PATCH, PATCH)

    def __call__(self, path):
        with np.load(path) as f:
            image, grade = f["image"], int(f["grade"])
        tiles = self.tiles(image)
        keep = (tiles < self.tissue_level).mean((1, 2)) > self.min_fraction
        return tiles[keep], grade


class ShardWriter:
    def __init__(self, rank):
        self.rank, self.count = rank, 0
        self.patches, self.grades = [], []

    def add(self, patches, grade):
        self.patches.append(patches)
        self.grades.append(np.full(len(patches), grade))
        self.count += len(patches)

    def flush(self):
        if self.count:
            np.savez(os.path.join(SHARDS, f"shard_{self.rank}.npz"),
                     x=np.concatenate(self.patches), y=np.concatenate(self.grades))


def index_worker(rank, jobs, counter):
    tiler, writer = Tiler(), ShardWriter(rank)
    while True:
        path = jobs.get()
        if path is None:
            writer.flush()
            jobs.task_done()
            return
        patches, grade = tiler(path)
        if len(patches) == 0:
            log.warning("%s: no tissue, skipped", os.path.basename(path))
            continue
        writer.add(patches, grade)
        with counter.get_lock():
            counter.value += len(patches)
        jobs.task_done()


def build_index(paths):
    os.makedirs(SHARDS, exist_ok=True)
    jobs, counter = mp.JoinableQueue(), mp.Value("l", 0)
    pool = [mp.Process(target=index_worker, args=(r, jobs, counter), name=f"index-{r}") for r in range(WORKERS)]
    for p in pool:
        p.start()
    for path in paths:
        jobs.put(path)
    for _ in pool:
        jobs.put(None)
    jobs.join()
    for p in pool:
        p.join()
    log.info("indexed %d patches of %d slides", counter.value, len(paths))


def load_index():
    shards = [np.load(p) for p in sorted(glob.glob(os.path.join(SHARDS, "*.npz")))]
    x = torch.from_numpy(np.concatenate([s["x"] for s in shards]))[:, None]
    return TensorDataset(x, torch.from_numpy(np.concatenate([s["y"] for s in shards])))


def train(dataset, epochs=2):
    model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.4f", epoch, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(processName)s %(message)s")
    shutil.rmtree(WORK, ignore_errors=True)
    started = time.time()
    make_slides(40, seed=1)
    log.info("wrote 40 slides in %.1f s", time.time() - started)
    build_index(sorted(glob.glob(os.path.join(SLIDES, "*.npz"))))
    train(load_index())


if __name__ == "__main__":
    main()
