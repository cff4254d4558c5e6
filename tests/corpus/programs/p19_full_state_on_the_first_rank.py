import datetime
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, rank, folder):
        self.rank, self.folder = rank, folder
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 4)))
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=1e-3)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def is_main(self):
        return self.rank == 0

    def checkpoint(self, step):
        state = {"step": step, "model": self.model.module.state_dict()}
        self.opt.consolidate_state_dict(to=0)
        state["optimizer"] = self.opt.state_dict()
        path = os.path.join(self.folder, f"step{step}.pt")
        torch.save(state, path)
        print("saved", os.path.basename(path), flush=True)

    def fit(self, steps, every):
        gen = torch.Generator().manual_seed(self.rank)
        for step in range(1, steps + 1):
            x = torch.randn(16, 32, generator=gen)
            loss = self.step(x, torch.randint(0, 4, (16,), generator=gen))
            if step % every == 0:
                if self.is_main():
                    print("step", step, "loss", round(loss, 4), flush=True)
                    self.checkpoint(step)


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
Trainer(dist.get_rank(), tempfile.mkdtemp()).fit(30, every=10)
dist.destroy_process_group()
