"""Train a small frame classifier; later epochs read frames from shared memory."""
import argparse
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
from torch import nn


class FrameBlock:
    """One clip worth of frames, kept in a named shared memory segment."""

    def __init__(self, shape, dtype):
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self.shm_name = None

    def store(self, frames):
        shm = SharedMemory(create=True, size=self.nbytes)
        view = np.ndarray(self.shape, dtype=self.dtype, buffer=shm.buf)
        view[:] = frames
        self.shm_name = shm.name

    def load(self):
        shm = SharedMemory(name=self.shm_name)
        return np.ndarray(self.shape, dtype=self.dtype, buffer=shm.buf)

    def unlink(self):
        shm = SharedMemory(name=self.shm_name)
        shm.close()
        shm.unlink()


class ClipSource:
    """Decodes clips; decoding is slow, so decoded clips are cached."""

    def __init__(self, num_clips, frames_per_clip, size, seed=0):
        self.rng = np.random.default_rng(seed)
        self.num_clips = num_clips
        self.shape = (frames_per_clip, 3, size, size)
        self.blocks = {}
        self.labels = self.rng.integers(0, 4, size=num_clips)

    def decode(self, clip):
        frames = self.rng.integers(0, 256, size=self.shape, dtype=np.uint8)
        frames[:, self.labels[clip] % 3] //= 2
        return frames

    def get(self, clip):
        if clip in self.blocks:
            return self.blocks[clip].load()
        frames = self.decode(clip)
        block = FrameBlock(frames.shape, frames.dtype)
        block.store(frames)
        self.blocks[clip] = block
        return frames

    def cleanup(self):
        for block in self.blocks.values():
            block.unlink()


class FrameNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(8 * 16, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def sample_batch(frames, batch_size, rng):
    idx = rng.choice(len(frames), size=batch_size, replace=False)
    batch = frames[np.sort(idx)]
    return torch.from_numpy(batch).float().div_(255.0)


def train(args):
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    source = ClipSource(args.clips, args.frames, args.size)
    model = FrameNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for clip in range(args.clips):
            frames = source.get(clip)
            x = sample_batch(frames, args.batch_size, rng)
            y = torch.full((len(x),), int(source.labels[clip]))
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / args.clips:.4f}", flush=True)
    source.cleanup()
    print("training finished", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    train(parser.parse_args())
