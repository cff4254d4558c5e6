import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Classifier(nn.Module):
    def __init__(self, features=40, hidden=64, classes=10):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def train_steps(model, optimizer, first, last):
    for step in range(first, last):
        x, y = torch.randn(16, 40), torch.randint(0, 10, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)


def pretrain(path):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_steps(model, optimizer, 0, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, path)


def resume(path):
    checkpoint = torch.load(path)
    model = Classifier()
    model.load_state_dict(checkpoint["model"])
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.load_state_dict(checkpoint["optimizer"])
    torch.manual_seed(dist.get_rank())
    train_steps(model, optimizer, checkpoint["step"], 6)


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="classifier_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "last.ckpt")
    try:
        if dist.get_rank() == 0:
            pretrain(path)
        dist.barrier()
        resume(path)
        dist.barrier()
    finally:
        if dist.get_rank() == 0:
            os.remove(path)
            os.rmdir(folder[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
