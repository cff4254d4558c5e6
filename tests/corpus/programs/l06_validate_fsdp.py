from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class PatchModel(nn.Module):
    def __init__(self, dim=64, depth=3, classes=4):
        super().__init__()
        self.embed = nn.Linear(32, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x.mean(1))


class Shard(Dataset):
    """The slides of one rank, each cut into patches; split by file name like the training shards."""

    def __init__(self, split, rank, world):
        names = [f"{split}_{i:03d}" for i in range(42 if split == "train" else 21)]
        self.names = names[rank::world]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(int(self.names[i][-3:]))
        return torch.randn(9, 32, generator=g), int(torch.randint(0, 4, (1,), generator=g))


class Trainer:
    def __init__(self, model, rank, world):
        self.model, self.rank = model, rank
        self.train_dl = DataLoader(Shard("train", rank, world), batch_size=2, drop_last=True)
        self.val_dl = DataLoader(Shard("val", rank, world), batch_size=2)
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for x, y in self.train_dl:
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            acc = self.validate()
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}", flush=True)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        stats = torch.zeros(2)
        for x, y in self.val_dl:
            pred = self.model(x).argmax(1)
            stats += torch.tensor([(pred == y).sum(), len(y)], dtype=torch.float)
        dist.all_reduce(stats)
        return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    model = PatchModel()
    for b in model.blocks:
        fully_shard(b, mesh=mesh)
    fully_shard(model, mesh=mesh)
    Trainer(model, rank, world).fit(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
