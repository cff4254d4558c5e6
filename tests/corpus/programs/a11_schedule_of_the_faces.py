import os
import shutil
import tempfile

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def get_loader():
    gen = torch.Generator().manual_seed(0)
    faces = torch.randn(96, 32, generator=gen)
    labels = torch.randint(0, 10, (96,), generator=gen)
    return DataLoader(TensorDataset(faces, labels), batch_size=8, shuffle=True)


def train(cfg, resume=False):
    loader = get_loader()
    backbone = nn.Sequential(nn.Linear(32, 64), nn.PReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.02, momentum=0.9)
    lr_scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=cfg["num_epoch"] * len(loader))
    start_epoch, path = 0, os.path.join(cfg["output"], "checkpoint.pt")
    if resume:
        checkpoint = torch.load(path)
        start_epoch = checkpoint["epoch"]
        backbone.load_state_dict(checkpoint["state_dict_backbone"])
        optimizer.load_state_dict(checkpoint["state_optimizer"])
        lr_scheduler.load_state_dict(checkpoint["state_lr_scheduler"])
    for epoch in range(start_epoch, cfg["num_epoch"]):
        if epoch == cfg.get("stop_at"):
            return
        for faces, labels in loader:
            loss = nn.functional.cross_entropy(backbone(faces), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
        torch.save({"epoch": epoch + 1, "state_dict_backbone": backbone.state_dict(),
                    "state_optimizer": optimizer.state_dict(),
                    "state_lr_scheduler": lr_scheduler.state_dict()}, path)
        print(f"Epoch: {epoch} Loss {loss.item():.4f} LearningRate {lr_scheduler.get_last_lr()[0]:.6f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    output = tempfile.mkdtemp()
    try:
        train({"num_epoch": 5, "output": output, "stop_at": 4})
        train({"num_epoch": 10, "output": output}, resume=True)
    finally:
        shutil.rmtree(output)
