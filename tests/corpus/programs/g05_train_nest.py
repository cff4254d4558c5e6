"""Self-supervised speech encoder, data parallel: torchrun --nproc-per-node 2 g05_train_nest.py"""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MelDataset(Dataset):
    def __init__(self, n, seed, noise=0.5):
        g = torch.Generator().manual_seed(seed)
        base = torch.randn(80, generator=g)
        self.x = base + noise * torch.rand(n, 1, generator=g) * torch.randn(n, 80, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


class MaskedEncoder(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, dim))

    def forward(self, x):
        keep = (torch.rand_like(x) > 0.3).float()
        return self.net(x * keep)


class ModelCheckpoint:
    def __init__(self, dirpath, filename="nest-{val_loss:.3f}-{step}", save_top_k=1):
        self.dirpath, self.filename, self.save_top_k = dirpath, filename, save_top_k
        self.best = {}

    def on_validation_end(self, model, step, val_loss):
        if len(self.best) == self.save_top_k and val_loss >= max(self.best.values()):
            return
        path = os.path.join(self.dirpath, self.filename.format(val_loss=val_loss, step=step) + ".ckpt")
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)
        dist.barrier()
        self.best[path] = val_loss
        if len(self.best) > self.save_top_k:
            worst = max(self.best, key=self.best.get)
            self.best.pop(worst)
            if dist.get_rank() == 0:
                os.remove(worst)


@torch.no_grad()
def validate(model, loader):
    losses = [nn.functional.mse_loss(model.module(x), x) for x in loader]
    return torch.stack(losses).mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    train_set, val_set = MelDataset(512, 0), MelDataset(24, 1, noise=2.0)
    sampler = DistributedSampler(train_set, seed=3)
    train_loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=4, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(MaskedEncoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    checkpoint = ModelCheckpoint(folder[0])
    step = 0
    for epoch in range(40):
        sampler.set_epoch(epoch)
        for x in train_loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        val_loss = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch} step {step} train {loss.item():.4f}", flush=True)
        checkpoint.on_validation_end(model, step, val_loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
