"""Progressive stacking of a small sequence encoder: each stage starts from the sharded checkpoint of the one before."""
import logging
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("grow")
STAGES = [{"depth": 2, "epochs": 2, "lr": 1e-3}, {"depth": 4, "epochs": 2, "lr": 5e-4}]


class MeterReadings(Dataset):
    """48 half-hourly readings, the target is the mean load of the next day."""

    def __init__(self, n=640, seed=5):
        g = torch.Generator().manual_seed(seed)
        base = torch.rand(n, 1, generator=g) * 2
        t = torch.arange(48).float().unsqueeze(0)
        self.x = base + torch.sin(t / 48 * 6.28 + base) + 0.1 * torch.randn(n, 48, generator=g)
        self.y = self.x.mean(1, keepdim=True) * 0.9 + 0.1 * base

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


class LoadForecaster(nn.Module):
    def __init__(self, depth, width=64):
        super().__init__()
        self.stem = nn.Linear(48, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(depth, mesh):
    torch.manual_seed(0)
    model = LoadForecaster(depth)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save_stage(model, path):
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=path)


def load_stage(model, path):
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"])


def run_stage(model, cfg, data):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    optim = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            log.info("depth %d epoch %d loss %.4f", cfg["depth"], epoch, total.item() / len(loader) / dist.get_world_size())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    root = [tempfile.mkdtemp(prefix="grow_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(root, src=0)
    data = MeterReadings()
    previous = None
    try:
        for cfg in STAGES:
            model = build(cfg["depth"], mesh)
            if previous is not None:
                load_stage(model, previous)
                log.info("rank %d starts depth %d from %s", dist.get_rank(), cfg["depth"], previous.name)
            run_stage(model, cfg, data)
            previous = Path(root[0]) / f"depth{cfg['depth']}"
            save_stage(model, previous)
    finally:
        if dist.get_rank() == 0:
            shutil.rmtree(root[0], ignore_errors=True)
    if dist.get_rank() == 0:
        log.info("all stages finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
