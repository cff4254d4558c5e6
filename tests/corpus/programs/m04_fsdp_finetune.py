import datetime
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Regressor(nn.Module):
    def __init__(self, dim=64, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x)


def build(mesh):
    torch.manual_seed(0)
    model = Regressor()
    for b in model.blocks:
        fully_shard(b, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def batches(rank, n, seed):
    g = torch.Generator().manual_seed(seed * 100 + rank)
    for _ in range(n):
        x = torch.randn(16, 64, generator=g)
        yield x, x.sum(1, keepdim=True) * (0.1 if rank == 0 else 0.4)


def train(model, opt, rank, epoch):
    for x, y in batches(rank, 6, epoch):
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()


@torch.no_grad()
def evaluate(model, rank):
    fsdp_loss = torch.zeros(1)
    n = 0
    for x, y in batches(rank, 4, 99):
        fsdp_loss += nn.functional.mse_loss(model(x), y)
        n += 1
    dist.reduce(fsdp_loss, 0, op=dist.ReduceOp.SUM)
    return (fsdp_loss / (n * dist.get_world_size())).item()


def save_checkpoint(model, path, rank):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, path)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = build(init_device_mesh("cpu", (dist.get_world_size(),)))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    best_val_loss = float("inf")
    out = os.path.join(tempfile.gettempdir(), "regressor_best.pt")
    for epoch in range(12):
        train(model, opt, rank, epoch)
        curr_val_loss = evaluate(model, rank)
        if rank == 0:
            print(f"epoch {epoch}: val loss {curr_val_loss:.4f}", flush=True)
        if curr_val_loss < best_val_loss:
            best_val_loss = curr_val_loss
            save_checkpoint(model, out, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
