from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class WindowDataset(Dataset):
    def __init__(self, series, window=100, stride=50):
        self.series = series
        self.window = window
        self.starts = range(0, len(series) - window + 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        return torch.from_numpy(self.series[s:s + self.window]), s


class AutoEncoder(nn.Module):
    def __init__(self, features, hidden=32):
        super().__init__()
        self.encoder = nn.GRU(features, hidden, batch_first=True)
        self.decoder = nn.Linear(hidden, features)

    def forward(self, x):
        h, _ = self.encoder(x)
        return self.decoder(h)


def build_loader(meta, rank, world_size, batch_size):
    shm = SharedMemory(name=meta["name"])
    series = np.ndarray(meta["shape"], dtype=meta["dtype"], buffer=shm.buf)
    per_worker = len(series) // world_size
    shard = series[rank * per_worker:(rank + 1) * per_worker]
    dataset = WindowDataset(shard)
    print(f"worker {rank}: {len(dataset)} windows, mean {shard.mean():.4f}", flush=True)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=False)
    shm.close()
    return loader


@torch.no_grad()
def evaluate(model, loader):
    scores = []
    for windows, _ in loader:
        error = (model(windows) - windows).pow(2).mean((1, 2))
        scores.append(error)
    return torch.cat(scores)


def inference_worker(rank, world_size, meta, state_dict, queue):
    torch.set_num_threads(1)
    loader = build_loader(meta, rank, world_size, batch_size=64)
    model = AutoEncoder(meta["shape"][1]).eval()
    model.load_state_dict(state_dict)
    scores = evaluate(model, loader)
    queue.put((rank, scores.mean().item(), scores.max().item()))


def detect(series, world_size=2):
    shm = SharedMemory(create=True, size=series.nbytes)
    np.ndarray(series.shape, dtype=series.dtype, buffer=shm.buf)[:] = series
    meta = {"name": shm.name, "shape": series.shape, "dtype": series.dtype.str}
    state_dict = AutoEncoder(series.shape[1]).state_dict()
    queue = mp.get_context("spawn").SimpleQueue()
    try:
        mp.spawn(inference_worker, args=(world_size, meta, state_dict, queue), nprocs=world_size)
        for _ in range(world_size):
            print("worker %d: mean score %.4f, max %.4f" % queue.get())
    finally:
        shm.close()
        shm.unlink()


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    detect(rng.standard_normal((200_000, 25)).astype(np.float32))
