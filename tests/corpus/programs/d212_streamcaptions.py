"""Contrastive image-caption pretraining from streamed shards."""
import argparse
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def write_shards(folder, count, rows, width):
    rng = np.random.default_rng(7)
    paths = []
    for i in range(count):
        path = folder / f"pairs-{i:05d}.npz"
        image = rng.standard_normal((rows, width)).astype(np.float32)
        text = (image[:, ::-1] + 0.3 * rng.standard_normal((rows, width))).astype(np.float32)
        np.savez(path, image=image, text=text)
        paths.append(path)
    return paths


class ShardSource:
    """One input of the shuffle buffer: a list of shard files that is read in order."""

    def __init__(self, paths):
        self.paths = list(paths)

    @property
    def num_shards(self):
        return len(self.paths)

    def part(self, index, of):
        return ShardSource(self.paths[index::of])

    def rows(self):
        for path in self.paths:
            with np.load(path) as data:
                image, text = data["image"], data["text"]
            for i in range(len(image)):
                yield image[i], text[i]


class MixedStream:
    """Draws rows from several sources in turn, so that the shuffle buffer sees more than one shard at a time."""

    def __init__(self, sources):
        self.sources = sources

    @classmethod
    def from_paths(cls, paths, inputs):
        inputs = min(inputs, len(paths))
        return cls([ShardSource(paths[i::inputs]) for i in range(inputs)])

    @property
    def num_shards(self):
        return min((s.num_shards for s in self.sources), default=0)

    def part(self, index, of):
        of = min(of, self.num_shards)
        return MixedStream([s.part(index, of) for s in self.sources] if index < of else [])

    def rows(self):
        running = [s.rows() for s in self.sources]
        while running:
            for rows in list(running):
                try:
                    yield next(rows)
                except StopIteration:
                    running.remove(rows)


class CaptionStream(IterableDataset):
    def __init__(self, paths, buffer_size=256, mix_inputs=10):
        self.stream = MixedStream.from_paths(paths, mix_inputs)
        self.buffer_size = buffer_size

    def __iter__(self):
        info = get_worker_info()
        stream = self.stream if info is None else self.stream.part(info.id, info.num_workers)
        rng = random.Random(info.seed if info else 0)
        buffer = []
        while True:
            for row in stream.rows():
                if len(buffer) < self.buffer_size:
                    buffer.append(row)
                    continue
                i = rng.randrange(self.buffer_size)
                yield buffer[i]
                buffer[i] = row


class TwoTower(nn.Module):
    def __init__(self, width, dim=64):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, dim))
        self.text = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, dim))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        a = F.normalize(self.image(image), dim=-1)
        b = F.normalize(self.text(text), dim=-1)
        return self.scale.exp() * a @ b.t()


def init_worker(worker_id):
    torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mix-inputs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="captions-") as folder:
        paths = write_shards(Path(folder), args.shards, args.rows, args.width)
        data = CaptionStream(paths, mix_inputs=args.mix_inputs)
        loader = DataLoader(data, batch_size=args.batch_size, num_workers=args.workers, worker_init_fn=init_worker)
        model = TwoTower(args.width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        print(f"{len(paths)} shards, {args.workers} workers, {args.steps} steps", flush=True)
        start = time.time()
        for step, (image, text) in enumerate(loader):
            if step == args.steps:
                break
            logits = model(image, text)
            target = torch.arange(len(image))
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.3f} {time.time() - start:.1f}s", flush=True)
        torch.save(model.state_dict(), Path(folder) / "last.pt")
        print("training finished", flush=True)


if __name__ == "__main__":
    main()
