"""Trains a small one-class detector on frames of a wildlife camera. Images are read and resized
once and then kept, as reading from the network disk is slow."""
import argparse
import os
import tempfile
import threading
import time

import numpy as np
import multiprocessing, re
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ContainerLimit(threading.Thread):
    """What the container does on the cluster: over the limit, the largest child is killed."""

    def __init__(self, limit_mb):
        super().__init__(daemon=True)
        self.limit = limit_mb * 2 ** 20

    def run(self):
        pss = lambda pid: int(re.search(r"Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read())[1]) * 1024
        while True:
            try:
                children = multiprocessing.active_children()
                used = [pss(p.pid) for p in children]
                if sum(used) + pss(os.getpid()) > self.limit and children:
                    children[int(np.argmax(used))].kill()
                    return
            except OSError:
                pass
            time.sleep(0.1)


def record_frames(folder, count, seed):
    """Raw 80 x 80 frames with one bright animal each; the label is its centre and size."""
    rng = np.random.default_rng(seed)
    labels = []
    for number in range(count):
        frame = rng.integers(0, 90, (80, 80, 3), dtype=np.uint8)
        cx, cy, size = rng.integers(16, 64), rng.integers(16, 64), rng.integers(4, 12)
        frame[cy - size:cy + size, cx - size:cx + size] += np.uint8(120)
        np.save(os.path.join(folder, f"frame_{number:05d}.npy"), frame)
        labels.append([cx / 80, cy / 80, size / 40])
    np.save(os.path.join(folder, "labels.npy"), np.array(labels, dtype=np.float32))


class LoadImagesAndLabels(Dataset):
    def __init__(self, folder, img_size, cache_images=True, augment=True):
        self.folder, self.img_size = folder, img_size
        self.cache_images, self.augment = cache_images, augment
        self.labels = np.load(os.path.join(folder, "labels.npy"))
        self.imgs = [None] * len(self.labels)

    def __len__(self):
        return len(self.labels)

    def load_image(self, index):
        img = self.imgs[index]
        if img is None:
            img = np.load(os.path.join(self.folder, f"frame_{index:05d}.npy"))
            repeat = self.img_size // img.shape[0]
            img = img.repeat(repeat, axis=0).repeat(repeat, axis=1)
            if self.cache_images:
                self.imgs[index] = img
        return img

    def __getitem__(self, index):
        img, label = self.load_image(index), self.labels[index].copy()
        if self.augment and torch.rand(1).item() < 0.5:
            img = img[:, ::-1]
            label[0] = 1 - label[0]
        img = np.ascontiguousarray(img[::4, ::4].transpose(2, 0, 1))
        return torch.from_numpy(img), torch.from_numpy(label)


class TinyDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.1))
        self.box = nn.Linear(16 * 10 * 10, 3)

    def forward(self, imgs):
        return self.box(self.backbone(imgs.float() / 255).flatten(1))


def train(opt, folder):
    dataset = LoadImagesAndLabels(folder, opt.img_size, cache_images=not opt.no_cache)
    loader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, num_workers=opt.workers,
                        persistent_workers=True)
    model = TinyDetector()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(opt.epochs):
        start, total = time.time(), 0.0
        for imgs, boxes in loader:
            optimizer.zero_grad()
            loss = F.smooth_l1_loss(model(imgs), boxes)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}/{opt.epochs - 1} box loss {total / len(loader):.5f} "
              f"({time.time() - start:.1f} s)", flush=True)
    torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
    print("finished", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--img-size", type=int, default=640)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--memory-mb", type=int, default=1050)
    opt = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ContainerLimit(opt.memory_mb).start()
    with tempfile.TemporaryDirectory(prefix="wildlife_") as folder:
        record_frames(folder, opt.images, seed=7)
        train(opt, folder)
