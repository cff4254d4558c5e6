import json
import multiprocessing as mp
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

WORK = "/tmp/e45_embedding_export"
CLASSES, DIM = 10, 256


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    x = torch.randn(n, 1, 16, 16, generator=g)
    x[torch.arange(n), 0, y] += 1.0
    return TensorDataset(x, y)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d((1, 4)),
            nn.Flatten(), nn.Linear(16 * 16 * 4, DIM), nn.ReLU(),
        )
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        z = self.body(x)
        return z, self.head(z)


class EmbeddingWriter:
    """Writes embeddings in a process of its own so that inference never waits for the disk."""

    def __init__(self, name, batches, shard_size=8):
        self.folder = os.path.join(WORK, name)
        os.makedirs(self.folder, exist_ok=True)
        self.batches, self.shard_size = batches, shard_size
        self.queue = mp.Queue()
        self.process = mp.Process(target=self._run)
        self.process.start()

    def _run(self):
        shard, written = [], 0
        for i in range(self.batches):
            shard.append(self.queue.get())
            if len(shard) == self.shard_size or i == self.batches - 1:
                path = os.path.join(self.folder, f"part_{written:04d}.npz")
                np.savez(path,
                         key=np.array([s["key"] for s in shard]),
                         z=np.concatenate([s["z"] for s in shard]),
                         y=np.concatenate([s["y"] for s in shard]))
                shard, written = [], written + 1
        with open(os.path.join(self.folder, "index.json"), "w") as f:
            json.dump({"parts": written, "batches": self.batches}, f)

    def put(self, key, z, y):
        self.queue.put({"key": key, "z": z.numpy(), "y": y.numpy()})

    def close(self):
        self.process.join()


def train(model, data, epochs=2):
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(epochs):
        total = 0.0
        for x, y in DataLoader(data, batch_size=50, shuffle=True):
            loss = F.cross_entropy(model(x)[1], y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
        print(f"epoch {epoch} loss {total / len(data):.4f}", flush=True)


class Evaluator:
    VIEWS = {
        "plain": lambda x: x,
        "flip": lambda x: x.flip(-1),
        "shift": lambda x: x.roll(1, -1),
    }

    def __init__(self, model, batch_size=128):
        self.model = model.eval()
        self.batch_size = batch_size

    @torch.no_grad()
    def run(self, name, data, views=("plain",)):
        loader = DataLoader(data, batch_size=self.batch_size)
        writer = EmbeddingWriter(name, len(loader))
        start, hits = time.time(), 0
        for i, (x, y) in enumerate(loader):
            votes = torch.zeros(len(y), CLASSES)
            for view in views:
                z, logits = self.model(self.VIEWS[view](x))
                votes += logits.softmax(1)
                writer.put(f"{i:05d}/{view}", z, y)
            hits += (votes.argmax(1) == y).sum().item()
        writer.close()
        accuracy = hits / len(data)
        print(f"{name}: accuracy {accuracy:.4f}, {len(views)} view(s), "
              f"{time.time() - start:.1f} s", flush=True)
        return accuracy


def main():
    os.makedirs(WORK, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Encoder()
    train(model, make_split(1500, 0))
    torch.save(model.state_dict(), os.path.join(WORK, "encoder.pt"))

    evaluator = Evaluator(model)
    report = {"dev": evaluator.run("dev", make_split(500, 1))}
    report["test"] = evaluator.run("test", make_split(1500, 2), views=("plain", "flip", "shift"))
    with open(os.path.join(WORK, "report.json"), "w") as f:
        json.dump(report, f, indent=1)
    print("report written", flush=True)


if __name__ == "__main__":
    main()
