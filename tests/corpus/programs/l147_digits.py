"""Digit classifier that keeps the best checkpoints of a run.

    python l147_digits.py
"""
import argparse
import os
import shutil
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    protos = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    y = torch.randint(0, 10, (n,), generator=g)
    return TensorDataset(protos[y] + 1.6 * torch.randn(n, 64, generator=g), y)


class LitDigits(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.layer_1 = nn.Linear(64, width)
        self.layer_2 = nn.Linear(width, width)
        self.layer_3 = nn.Linear(width, 10)

    def forward(self, x):
        x = F.relu(self.layer_1(x))
        return self.layer_3(F.relu(self.layer_2(x)))


class ModelCheckpoint:
    """Keeps the `save_top_k` checkpoints with the lowest validation loss."""

    def __init__(self, dirpath, rank, save_top_k=2):
        self.dirpath, self.rank, self.save_top_k = dirpath, rank, save_top_k
        self.best_k_models = {}

    def _save_model(self, path, model):
        if self.rank == 0:
            torch.save(model.module.state_dict(), path)
        dist.barrier()

    def _export(self, epoch, val_loss, model):
        """Plain text weights of the newest epoch, for the firmware build."""
        if self.rank == 0:
            with open(os.path.join(self.dirpath, "weights.txt"), "w") as f:
                f.write(f"# epoch {epoch} val_loss {val_loss:.5f}\n")
                for name, tensor in model.module.state_dict().items():
                    f.write(f"# {name} {tuple(tensor.shape)}\n")
                    np.savetxt(f, tensor.reshape(tensor.shape[0], -1).numpy(), fmt="%.6f")

    def _del_model(self, path):
        os.remove(path)

    def on_validation_end(self, epoch, val_loss, model):
        path = os.path.join(self.dirpath, f"epoch={epoch}.ckpt")
        self._save_model(path, model)
        self.best_k_models[path] = val_loss
        self._export(epoch, val_loss, model)
        if len(self.best_k_models) > self.save_top_k:
            worst = max(self.best_k_models, key=self.best_k_models.get)
            self.best_k_models.pop(worst)
            self._del_model(worst)


def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            total += torch.tensor([F.cross_entropy(model(x), y).item(), 1.0])
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def ddp_train(rank, world_size, port, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    train, val = make_digits(4096, 10), make_digits(1024, 11)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=64, sampler=sampler)
    val_loader = DataLoader(val, batch_size=64, sampler=DistributedSampler(val, shuffle=False))
    model = DistributedDataParallel(LitDigits())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    checkpoint = ModelCheckpoint(args.dirpath, rank, args.save_top_k)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        val_loss = validate(model, val_loader)
        if rank == 0:
            print(f"Epoch {epoch}: val_loss {val_loss:.4f}", flush=True)
        checkpoint.on_validation_end(epoch, val_loss, model)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=2, help="number of processes")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--save-top-k", type=int, default=2)
    parser.add_argument("--dirpath", default="digits_ckpt")
    args = parser.parse_args()
    shutil.rmtree(args.dirpath, ignore_errors=True)
    os.makedirs(args.dirpath)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(ddp_train, args=(args.gpus, port, args), nprocs=args.gpus)
    print("fit finished:", sorted(os.listdir(args.dirpath)), flush=True)


if __name__ == "__main__":
    main()
