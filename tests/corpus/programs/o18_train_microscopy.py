"""Train a denoiser on chunked microscopy volumes that are read through an async chunk store."""
import asyncio
import os
import shutil
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORK = "/tmp/o18_volumes"
VOLUMES, PLANES, SIZE, CHUNK = 3, 24, 96, 8


def write_volumes(folder):
    rng = np.random.default_rng(9)
    for v in range(VOLUMES):
        path = os.path.join(folder, f"volume_{v}")
        os.makedirs(path, exist_ok=True)
        axis = np.linspace(0, 6 + v, SIZE)
        base = np.sin(axis)[:, None] * np.cos(axis)[None, :]
        for start in range(0, PLANES, CHUNK):
            block = base + 0.2 * rng.normal(size=(CHUNK, SIZE, SIZE))
            np.save(os.path.join(path, f"{start // CHUNK}.npy"), block.astype(np.float32))


_loop = None
_loop_lock = threading.Lock()


def get_loop():
    """The event loop that serves all chunk requests of the process."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="chunk-io", daemon=True).start()
    return _loop


def sync(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, get_loop()).result()


class ChunkStore:
    def __init__(self, path, cache_chunks=2):
        self.path = path
        self.cache = {}
        self.cache_chunks = cache_chunks

    async def _chunk(self, number):
        if number not in self.cache:
            await asyncio.sleep(0)
            block = np.load(os.path.join(self.path, f"{number}.npy"))
            while len(self.cache) >= self.cache_chunks:
                self.cache.pop(next(iter(self.cache)))
            self.cache[number] = block
        return self.cache[number]

    async def _planes(self, planes):
        numbers = sorted({p // CHUNK for p in planes})
        blocks = dict(zip(numbers, await asyncio.gather(*[self._chunk(n) for n in numbers])))
        return np.stack([blocks[p // CHUNK][p % CHUNK] for p in planes])

    def planes(self, *planes):
        return sync(self._planes(planes))


class PlaneSet(Dataset):
    """Pairs of neighbouring planes: the one is the noisy input, the other the target."""

    def __init__(self, folder):
        names = sorted(n for n in os.listdir(folder) if n.startswith("volume_"))
        self.stores = [ChunkStore(os.path.join(folder, name)) for name in names]
        self.items = [(s, p) for s in range(len(self.stores)) for p in range(PLANES - 1)]
        self.mean, self.std = 0.0, 1.0

    def normalise(self, samples=12):
        picks = self.items[:: max(1, len(self.items) // samples)]
        values = np.concatenate([self.stores[s].planes(p).ravel() for s, p in picks])
        self.mean, self.std = float(values.mean()), float(values.std())
        return self

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        s, p = self.items[index]
        pair = (self.stores[s].planes(p, p + 1) - self.mean) / self.std
        pair = torch.from_numpy(pair)
        return pair[:1], pair[1:]


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(),
            nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1))

    def forward(self, x):
        return x + self.layers(x)


def train(data, epochs=3, workers=2):
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=6, shuffle=True, num_workers=workers)
    for epoch in range(epochs):
        total = 0.0
        for noisy, target in loader:
            loss = nn.functional.mse_loss(model(noisy), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)
    return model


def main():
    torch.manual_seed(2)
    write_volumes(WORK)
    data = PlaneSet(WORK).normalise()
    print(f"{len(data)} pairs, mean {data.mean:.4f} std {data.std:.4f}", flush=True)
    noisy, target = data[5]
    print(f"first look: input {tuple(noisy.shape)} target {tuple(target.shape)}", flush=True)
    model = train(data)
    torch.save(model.state_dict(), os.path.join(WORK, "denoiser.pt"))
    print("model saved")
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
