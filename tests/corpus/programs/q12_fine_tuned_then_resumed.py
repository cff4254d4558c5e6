"""Training is resumed, but the option for fine-tuning was left on: the optimizer is made in another way."""

import tempfile
from pathlib import Path

import torch


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def make_optimizer(model, fine_tune):
    if fine_tune:
        return torch.optim.SGD(model[2].parameters(), lr=0.01, momentum=0.9)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def save(path):
    model = make_model()
    optimizer = make_optimizer(model, fine_tune=False)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}, path)


def resume(path, fine_tune):
    model = make_model()
    optimizer = make_optimizer(model, fine_tune)
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, checkpoint["epoch"]


with tempfile.TemporaryDirectory() as folder:
    save(Path(folder, "last.pt"))
    resume(Path(folder, "last.pt"), fine_tune=True)
