"""Pretrain a small video encoder on clips that are kept in one preallocated arena of frames."""
import argparse
import threading
import time

import torch
from torch import nn


class FrameArena:
    """All decoded frames lie in one tensor; a clip owns a slot of it as long as it lives."""

    def __init__(self, slots, frames, size):
        self.frames = torch.zeros(slots, frames, size, size)
        self.free = list(range(slots))
        self.owner = {}
        self.served = 0
        self.lock = threading.Lock()

    def acquire(self, name):
        with self.lock:
            slot = self.free.pop()
            self.owner[slot] = (name, time.monotonic())
            self.served += 1
        return slot

    def release(self, slot):
        with self.lock:
            self.owner.pop(slot, None)
            self.free.append(slot)

    def usage(self):
        now = time.monotonic()
        with self.lock:
            table = [{"slot": i, "clip": self.owner.get(i, ("-", now))[0], "age": [now - self.owner.get(i, ("-", now))[1]]}
                     for i in range(len(self.frames))]
            return {"used": len(self.owner), "served": self.served,
                    "oldest": max(row["age"][0] for row in table), "table": table}


class Clip:
    def __init__(self, arena, name, generator):
        self.arena = arena
        self.name = name
        self.slot = arena.acquire(name)
        self.frames = arena.frames[self.slot]
        self.frames.copy_(torch.rand(self.frames.shape, generator=generator))
        self.augment = [self.flip, self.brighten]

    def flip(self, x):
        return x.flip(-1)

    def brighten(self, x):
        return (x * 1.2).clamp(0, 1)

    def views(self):
        first = self.frames.clone()
        second = self.frames
        for step in self.augment:
            second = step(second)
        return first, second

    def __del__(self):
        self.arena.release(self.slot)


class Encoder(nn.Module):
    def __init__(self, frames, size, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(frames, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, width))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def clip_batches(arena, steps, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        clips = [Clip(arena, f"walk_{step:04d}_{k:02d}", generator) for k in range(batch)]
        pairs = [clip.views() for clip in clips]
        yield torch.stack([a for a, _ in pairs]), torch.stack([b for _, b in pairs])


def contrast(a, b, temperature=0.2):
    logits = a @ b.t() / temperature
    return nn.functional.cross_entropy(logits, torch.arange(len(a)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--slots", type=int, default=2400)
    parser.add_argument("--report-every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    arena = FrameArena(args.slots, 4, 32)
    model = Encoder(4, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, (one, two) in enumerate(clip_batches(arena, args.steps, args.batch, seed=11), 1):
        loss = contrast(model(one), model(two))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % args.report_every == 0:
            usage = arena.usage()
            print(f"slots {usage['used']} of {args.slots}, oldest clip {usage['oldest']:.1f} s", flush=True)
    print("done,", arena.served, "clips", flush=True)


if __name__ == "__main__":
    main()
