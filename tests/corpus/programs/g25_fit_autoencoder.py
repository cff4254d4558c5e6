import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AutoEncoder(nn.Module):
    def __init__(self, dim=32, latent=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, latent))
        self.dec = nn.Sequential(nn.Linear(latent, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.dec(self.enc(x))


class Trainer:
    def __init__(self, model, out_dir, max_epochs=3):
        self.rank = dist.get_rank()
        self.model = DDP(model)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.out_dir, self.max_epochs = out_dir, max_epochs
        self.epoch = 0
        os.makedirs(out_dir, exist_ok=True)

    @property
    def is_global_zero(self):
        return self.rank == 0

    def save_checkpoint(self, name):
        """Write the state and wait until the file is visible to every process."""
        path = os.path.join(self.out_dir, name)
        if self.is_global_zero:
            torch.save({"model": self.model.module.state_dict(), "opt": self.opt.state_dict(),
                        "epoch": self.epoch}, path)
        dist.barrier()
        return path

    def fit(self, loader):
        for self.epoch in range(self.max_epochs):
            loader.sampler.set_epoch(self.epoch)
            for (x,) in loader:
                loss = nn.functional.mse_loss(self.model(x), x)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            print(f"[{self.rank}] epoch {self.epoch} loss {loss.item():.4f}", flush=True)
            self.save_checkpoint(f"epoch={self.epoch}.ckpt")


def finalize_aliases(out_dir, last, rank):
    """best.ckpt / last.ckpt aliases used by the evaluation jobs."""
    if rank == 0:
        alias = os.path.join(out_dir, "last.ckpt")
        if os.path.lexists(alias):
            os.remove(alias)
        os.symlink(os.path.basename(last), alias)
    dist.barrier()


def run_training():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(512, 4) @ torch.randn(4, 32))
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    out_dir = "/tmp/autocast_runs/ae"
    trainer = Trainer(AutoEncoder(), out_dir)
    start = time.time()
    trainer.fit(loader)
    last = os.path.join(out_dir, "final.ckpt")
    if trainer.is_global_zero:
        print(f"training done in {time.time() - start:.1f}s, saving final checkpoint", flush=True)
        trainer.save_checkpoint("final.ckpt")
    finalize_aliases(out_dir, last, trainer.rank)
    if trainer.is_global_zero:
        print("run finished:", sorted(os.listdir(out_dir)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_training()
