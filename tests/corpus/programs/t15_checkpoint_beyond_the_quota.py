"""The checkpoint grows beyond what the file system lets this user write."""

import resource
import tempfile
from pathlib import Path

import torch

resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, resource.RLIM_INFINITY))


def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def train(folder, steps):
    model = torch.nn.Linear(1024, 1024)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        save(model, optimizer, Path(folder, f"step_{step}.pt"))
        model(torch.randn(4, 1024)).sum().backward()
        optimizer.step()


with tempfile.TemporaryDirectory() as folder:
    train(folder, 2)
