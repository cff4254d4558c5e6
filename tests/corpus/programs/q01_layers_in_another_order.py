"""The layers of a model were in another order when its optimizer was saved: Adam's states are those of other layers."""

import tempfile
from pathlib import Path

import torch


class Before(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 2)
        self.table = torch.nn.Embedding(200_000, 64)


class After(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(200_000, 64)
        self.head = torch.nn.Linear(8, 2)


def step(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def save(path, model):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step(model, optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def resume(path, model):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    optimizer.load_state_dict(checkpoint["optimizer"])
    step(model, optimizer)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "last.pt")
    save(path, Before())
    resume(path, After())
    print("resumed")
