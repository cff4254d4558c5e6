"""Training is resumed from a file of weights that were published for inference."""

import tempfile
from pathlib import Path

import torch


def publish(model, folder):
    path = Path(folder, "model_epoch_300.pth")
    torch.save({"state_dict": model.state_dict(), "epoch": 300}, path)
    return path


def resume(path, model, optimizer):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


with tempfile.TemporaryDirectory() as folder:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    print(resume(publish(model, folder), model, optimizer))
