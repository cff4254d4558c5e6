"""Undistort and downscale survey photos in parallel, then fit a small depth network to the thumbnails."""
import argparse
import multiprocessing as mp
import os
import signal
import threading
import time

import numpy as np
import torch
from torch import nn


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


class NodeMemoryPolicy(threading.Thread):
    """Stand-in for the compute node: a process of the job that holds more than its share is removed."""

    def __init__(self, share_mb, every=0.05):
        super().__init__(daemon=True)
        self.share, self.every = share_mb * 2**20, every
        self.me = os.getpid()

    def run(self):
        while True:
            for task in os.listdir(f"/proc/{self.me}/task"):
                with open(f"/proc/{self.me}/task/{task}/children") as f:
                    workers = [int(p) for p in f.read().split()]
                for pid in workers:
                    try:
                        if resident(pid) > self.share:
                            os.kill(pid, signal.SIGKILL)
                    except (OSError, IndexError):
                        pass
            time.sleep(self.every)


def photo_list(count):
    """(name, width, height); the last flight was done with the large camera."""
    rng = np.random.default_rng(5)
    photos = [(f"DJI_{i:04d}", int(rng.integers(600, 900)), int(rng.integers(400, 600))) for i in range(count)]
    photos[count * 3 // 4] = (f"IXM_{count * 3 // 4:04d}", 6000, 4500)
    return photos


def read_photo(name, width, height):
    seed = int(name.split("_")[1])
    ramp = np.linspace(0, 1, width, dtype=np.float32)[None, :] * np.linspace(0.5, 1, height, dtype=np.float32)[:, None]
    return ramp + 0.05 * np.float32(np.sin(seed))


def undistort(photo):
    name, width, height = photo
    image = read_photo(name, width, height)
    rows = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    cols = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    radius = rows * rows + cols * cols
    scale = 1.0 + 0.05 * radius + 0.01 * radius * radius
    for _ in range(3):
        scale = 1.0 + 0.05 * radius / scale + 0.01 * radius * radius / (scale * scale)
        time.sleep(0.02)
    r = np.clip(((rows / scale) + 1) * 0.5 * (height - 1), 0, height - 1).astype(np.int32)
    c = np.clip(((cols / scale) + 1) * 0.5 * (width - 1), 0, width - 1).astype(np.int32)
    flat = image[r, c]
    thumb = torch.from_numpy(flat)[None, None]
    return name, nn.functional.adaptive_avg_pool2d(thumb, (24, 32))[0].numpy()


class DepthNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                                    nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                    nn.Conv2d(width, 1, 1))

    def forward(self, x):
        return self.layers(x)


def fit(net, thumbs, steps):
    optim = torch.optim.Adam(net.parameters(), lr=3e-3)
    target = 1.0 / (0.2 + thumbs)
    for step in range(steps):
        loss = nn.functional.mse_loss(net(thumbs), target)
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


def worker_setup():
    torch.set_num_threads(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--photos", type=int, default=24)
    ap.add_argument("--processes", type=int, default=2)
    ap.add_argument("--share-mb", type=int, default=600)
    args = ap.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    NodeMemoryPolicy(args.share_mb).start()
    photos = photo_list(args.photos)
    net = DepthNet()
    half = len(photos) // 2
    with mp.get_context("fork").Pool(args.processes, initializer=worker_setup) as pool:
        for flight, chunk in enumerate((photos[:half], photos[half:])):
            begin = time.time()
            thumbs = dict(pool.map(undistort, chunk, chunksize=1))
            stack = torch.from_numpy(np.stack([thumbs[name] for name, _, _ in chunk]))
            loss = fit(net, stack, 40)
            print(f"flight {flight}: {len(chunk)} photos in {time.time() - begin:.1f} s, loss {loss:.4f}", flush=True)
    torch.save(net.state_dict(), "depth.pt")
    print("all flights done", flush=True)


if __name__ == "__main__":
    main()
