"""Speaker classifier on pooled frame features kept in flat files."""
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM = 64


class FrameWriter:
    """Appends utterances to <name>.f32 and keeps where each one begins."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)
        self.file = open(self.path + ".f32", "wb")
        self.bounds = [0]
        self.labels = []

    def add(self, frames, label):
        self.file.write(frames.astype(np.float32).tobytes())
        self.bounds.append(self.bounds[-1] + len(frames))
        self.labels.append(label)

    def close(self):
        self.file.close()
        np.savez(self.path + ".npz", bounds=np.array(self.bounds), labels=np.array(self.labels))


class StreamWriter(FrameWriter):
    """For recordings that arrive in chunks; an utterance ends with finish()."""

    def push(self, frames):
        self.file.write(frames.astype(np.float32).tobytes())

    def finish(self, label):
        self.bounds.append(self.file.tell())
        self.labels.append(label)


class FrameStore:
    def __init__(self, folder, name):
        path = os.path.join(folder, name)
        meta = np.load(path + ".npz")
        self.frames = torch.from_numpy(np.fromfile(path + ".f32", dtype=np.float32)).view(-1, DIM)
        self.bounds = torch.from_numpy(meta["bounds"])
        self.labels = torch.from_numpy(meta["labels"])

    def __len__(self):
        return len(self.labels)

    def batch(self, first, count):
        last = min(first + count, len(self))
        return self.bounds[first:last + 1], self.labels[first:last]


def speaker_frames(rng, speaker, n):
    shift = np.sin(np.arange(DIM) * (speaker + 1))
    return rng.standard_normal((n, DIM)) + shift


def make_train(folder, rng, count):
    out = FrameWriter(folder, "train")
    for _ in range(count):
        who = int(rng.integers(0, 10))
        out.add(speaker_frames(rng, who, int(rng.integers(50, 150))), who)
    out.close()


def make_calls(folder, rng, count):
    out = StreamWriter(folder, "calls")
    for _ in range(count):
        who = int(rng.integers(0, 10))
        for _ in range(int(rng.integers(3, 9))):
            out.push(speaker_frames(rng, who, 20))
        out.finish(who)
    out.close()


class Pooler(nn.Module):
    """Mean and peak over the frames of each utterance of a batch."""

    def forward(self, frames, bounds):
        mean = torch.segment_reduce(frames, "mean", offsets=bounds, axis=0)
        peak = torch.segment_reduce(frames, "max", offsets=bounds, axis=0)
        return torch.cat([mean, peak], dim=1)


class SpeakerNet(nn.Module):
    def __init__(self, speakers=10):
        super().__init__()
        self.pool = Pooler()
        self.net = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, speakers))

    def forward(self, frames, bounds):
        return self.net(self.pool(frames, bounds))


def train(model, store, opt, batch):
    model.train()
    total = 0.0
    for first in range(0, len(store), batch):
        bounds, labels = store.batch(first, batch)
        loss = F.cross_entropy(model(store.frames, bounds), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(labels)
    return total / len(store)


@torch.no_grad()
def evaluate(model, store, batch):
    model.eval()
    hits = 0
    for first in range(0, len(store), batch):
        bounds, labels = store.batch(first, batch)
        hits += int((model(store.frames, bounds).argmax(1) == labels).sum())
    return hits / len(store)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    folder = tempfile.mkdtemp(prefix="o23_pool_features_")
    try:
        make_train(folder, rng, 600)
        make_calls(folder, rng, 200)
        train_set, calls = FrameStore(folder, "train"), FrameStore(folder, "calls")
        print("frames", tuple(train_set.frames.shape), tuple(calls.frames.shape), flush=True)
        model = SpeakerNet()
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(3):
            loss = train(model, train_set, opt, batch=50)
            print(f"epoch {epoch} loss {loss:.3f} train acc {evaluate(model, train_set, 50):.3f}", flush=True)
        print(f"calls acc {evaluate(model, calls, 50):.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
