import os
import shutil
import sys
import tempfile

import torch
import torch.nn as nn

sys.setrecursionlimit(1000000)


class Job:
    def __init__(self, name, dependency=None):
        self.name = name
        self.dependency = dependency
        self.done = False


class Pipeline:
    def __init__(self, folder):
        self.folder = folder
        self.last = None
        self.length = 0

    def add(self, name):
        self.last = Job(name, dependency=self.last)
        self.length += 1
        return self.last

    def checkpoint(self, model):
        path = os.path.join(self.folder, "pipeline.pt")
        torch.save({"model": model.state_dict(), "jobs": self.last, "length": self.length}, path)
        return path


def simulate(job, dim=4):
    gen = torch.Generator().manual_seed(len(job.name))
    theta = torch.rand(8, dim, generator=gen)
    return theta, theta + 0.1 * torch.randn(8, dim, generator=gen)


def train(folder, rounds=40, simulations=2000):
    pipeline = Pipeline(folder)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for r in range(rounds):
        for s in range(simulations):
            job = pipeline.add(f"simulate-{r}-{s}")
            job.done = True
        theta, x = simulate(job)
        loss = (model(x) - theta).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pipeline.checkpoint(model)
        print(f"round {r}: jobs {pipeline.length} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        train(folder)
    finally:
        shutil.rmtree(folder)
