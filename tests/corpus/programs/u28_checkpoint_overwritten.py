# meta-pytorch/torchtune#1075: torch.load(mmap=True), then torch.save() to the same file
import os
import tempfile

import torch

path = os.path.join(tempfile.mkdtemp(), "last.pt")
torch.save({"model": torch.randn(1024, 1024), "ema": torch.randn(1024, 1024)}, path)


def resume():
    return torch.load(path, mmap=True)


def export(state):
    return {name: value.half() for name, value in state.items()}


state = resume()
torch.save({"model": torch.zeros(8)}, path)
print(export(state)["ema"].sum())
