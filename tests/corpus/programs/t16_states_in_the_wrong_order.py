"""The states of the optimizer and of the scheduler were exchanged when the checkpoint was written."""

import tempfile
from pathlib import Path

import torch


def save_checkpoint(path, model, scheduler, optimizer):
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, path
    )


def load_checkpoint(path, model, optimizer, scheduler):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])


model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "current.pth")
    save_checkpoint(path, model, optimizer, scheduler)
    load_checkpoint(path, model, optimizer, scheduler)
