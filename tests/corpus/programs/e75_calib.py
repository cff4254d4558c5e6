"""Calibrate a set of recordings in parallel worker processes and fit a model on the features."""
import multiprocessing as mp
import os

import numpy as np
import torch
from torch import nn

ROOT = "/tmp/e75_calib_work"
N_STATIONS = 48


def make_station(i, root=ROOT):
    rng = np.random.default_rng(100 + i)
    signal = rng.normal(1.0, 0.3, size=(256, 8)).astype(np.float32)
    weights = rng.uniform(0.5, 1.5, size=256).astype(np.float32)
    if i % 16 == 13:
        weights = weights[:-8]
    path = os.path.join(root, f"station_{i:03d}.npz")
    np.savez(path, signal=signal, weights=weights, label=i % 3)
    return path


def calibrate(path):
    with np.load(path) as z:
        signal, weights = z["signal"], z["weights"]
        gain = (signal * weights[:, None]).sum(0) / weights.sum()
        spread = np.sqrt((((signal - gain) ** 2) * weights[:, None]).mean(0))
        return np.concatenate([gain, spread]).astype(np.float32), int(z["label"])


class ProcManager:
    """Runs func over scheduled arguments in a fixed set of processes."""

    def __init__(self, n_proc, func):
        self.in_queue = mp.JoinableQueue()
        self.results = mp.Manager().dict()
        self.procs = []
        self.scheduled = 0
        for _ in range(n_proc):
            p = mp.Process(target=self._loop, args=(func, self.in_queue, self.results))
            p.daemon = True
            p.start()
            self.procs.append(p)

    @staticmethod
    def _loop(func, in_queue, results):
        torch.set_num_threads(1)
        while True:
            job = in_queue.get()
            if job is None:
                in_queue.task_done()
                break
            key, path = job
            results[key] = func(path)
            in_queue.task_done()

    def put(self, key, path):
        self.in_queue.put((key, path))
        self.scheduled += 1

    def wait(self):
        for _ in self.procs:
            self.in_queue.put(None)
        self.in_queue.join()
        for p in self.procs:
            p.join()
        return dict(self.results)


class Classifier(nn.Module):
    def __init__(self, dim, classes=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.net(x)


def fit(x, y, epochs=20):
    torch.manual_seed(0)
    model = Classifier(x.shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"final loss {loss.item():.4f}", flush=True)
    return model


def main():
    os.makedirs(ROOT, exist_ok=True)
    paths = [make_station(i) for i in range(N_STATIONS)]
    print(f"wrote {len(paths)} station files", flush=True)

    feats, label = calibrate(paths[0])
    print(f"feature size {feats.shape[0]}", flush=True)

    manager = ProcManager(2, calibrate)
    for i, path in enumerate(paths):
        manager.put(i, path)
    print(f"scheduled {manager.scheduled} jobs", flush=True)
    results = manager.wait()
    print(f"calibrated {len(results)} stations", flush=True)

    keys = sorted(results)
    x = torch.from_numpy(np.stack([results[k][0] for k in keys]))
    y = torch.tensor([results[k][1] for k in keys])
    model = fit(x, y)
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))


if __name__ == "__main__":
    main()
