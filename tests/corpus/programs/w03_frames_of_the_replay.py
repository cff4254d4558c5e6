from multiprocessing import shared_memory

import numpy as np
import torch

CAPACITY, FRAME = 512, (4, 42, 42)


class ReplayMemory:
    def __init__(self, capacity, frame):
        size = capacity * int(np.prod(frame)) * np.dtype(np.float32).itemsize
        self.frames = shared_memory.SharedMemory(create=True, size=size)
        self.frames = np.ndarray((capacity, *frame), dtype=np.float32, buffer=self.frames.buf)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.capacity = capacity
        self.position = 0

    def push(self, frame, reward):
        slot = self.position % self.capacity
        self.frames[slot] = frame
        self.rewards[slot] = reward
        self.position += 1

    def sample(self, batch_size, rng):
        slots = rng.integers(0, min(self.position, self.capacity), batch_size)
        return torch.from_numpy(self.frames[slots]), torch.from_numpy(self.rewards[slots])


def train(steps):
    rng = np.random.default_rng(0)
    memory = ReplayMemory(CAPACITY, FRAME)
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 5, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(1))
    for step in range(steps):
        memory.push(rng.random(FRAME, dtype=np.float32), rng.random())
        if step >= 32:
            frames, rewards = memory.sample(16, rng)
            loss = torch.nn.functional.mse_loss(model(frames).squeeze(1), rewards)
            loss.backward()
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(64)
