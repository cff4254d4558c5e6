"""Keep preprocessed spectrogram blocks in shared memory and train a classifier from them."""
import argparse
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.nn as nn


class BlockStore:
    """Owner side: creates the named blocks and removes them at the end."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.blocks = {}

    def publish(self, key, array):
        shm = shared_memory.SharedMemory(create=True, size=array.nbytes)
        view = np.ndarray(array.shape, dtype=array.dtype, buffer=shm.buf)
        view[:] = array
        self.blocks[key] = shm
        return {"name": shm.name, "shape": array.shape, "dtype": str(array.dtype)}

    def clear(self):
        for shm in self.blocks.values():
            shm.close()
            shm.unlink()
        self.blocks.clear()


def open_block(entry):
    shm = shared_memory.SharedMemory(name=entry["name"])
    return np.ndarray(entry["shape"], dtype=entry["dtype"], buffer=shm.buf)


def make_clips(n, bands, frames, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    clips = rng.normal(0, 1, (n, bands, frames)).astype(np.float32)
    for i, c in enumerate(labels):
        clips[i, c * bands // 4:(c + 1) * bands // 4] += 0.5
    return clips, labels


def normalise(clips):
    mean = clips.mean(axis=(1, 2), keepdims=True)
    std = clips.std(axis=(1, 2), keepdims=True)
    return (clips - mean) / (std + 1e-6)


class ClipDataset(torch.utils.data.Dataset):
    def __init__(self, entry, labels):
        self.clips = torch.from_numpy(open_block(entry))
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.clips[i], self.labels[i]


class Classifier(nn.Module):
    def __init__(self, bands, classes=4):
        super().__init__()
        self.conv = nn.Conv1d(bands, 32, 5, padding=2)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean(dim=2))


def train(model, loader, optimizer, epoch):
    total, hits, seen = 0.0, 0, 0
    for clips, labels in loader:
        logits = model(clips)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        hits += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    print(f"epoch {epoch}: loss {total / seen:.4f} accuracy {hits / seen:.3f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=512)
    p.add_argument("--bands", type=int, default=64)
    p.add_argument("--frames", type=int, default=128)
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    store = BlockStore("clips")
    clips, labels = make_clips(args.clips, args.bands, args.frames, seed=1)
    entry = store.publish("train", normalise(clips))
    print(f"published {entry['name'][:4]}... {entry['shape']} {clips.nbytes / 2**20:.0f} MiB", flush=True)

    model = Classifier(args.bands)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    warm = torch.utils.data.TensorDataset(torch.from_numpy(normalise(clips[:64])), torch.from_numpy(labels[:64]))
    train(model, torch.utils.data.DataLoader(warm, 16), optimizer, "warm-up")
    del clips, warm

    dataset = ClipDataset(entry, labels)
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True)
    for epoch in range(args.epochs):
        train(model, loader, optimizer, epoch)
    store.clear()
    torch.save(model.state_dict(), "clips.pt")
    print("saved clips.pt")


if __name__ == "__main__":
    main()
