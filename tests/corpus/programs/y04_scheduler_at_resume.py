"""A scheduler is made at the epoch of the checkpoint, for an optimizer that is new."""

import tempfile
from pathlib import Path

import torch


def setup_optimizer(model, checkpoint):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    last = checkpoint["epoch"] if checkpoint else -1
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch, last_epoch=last)


model = torch.nn.Linear(4, 2)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "last.pt"
    torch.save({"epoch": 3, "model": model.state_dict()}, path)
    setup_optimizer(model, None)
    setup_optimizer(model, torch.load(path))
