import datetime
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Log:
    def __init__(self, every):
        self.every, self.rows = every, []

    def add(self, step, **values):
        if dist.get_rank() != 0 or step % self.every:
            return
        row = {name: self.number(v) for name, v in values.items()}
        self.rows.append(row)
        print("step", step, row, flush=True)

    @staticmethod
    def number(value):
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        return round(float(value), 4)


def build(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(64) for _ in range(2)), nn.Linear(64, 1))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model, log = build(mesh), Log(every=2)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 7):
        x = torch.randn(16, 64, generator=gen)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        log.add(step, loss=loss.detach(), head=model[-1].weight.detach().norm())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
