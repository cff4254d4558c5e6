"""Digit classification with a mixture-of-experts layer; every expert is its own FSDP unit."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("moe")


class Digits(Dataset):
    """Noisy 12x12 glyphs in ten classes."""

    def __init__(self, count, seed=0):
        shapes = torch.rand(10, 144, generator=torch.Generator().manual_seed(42)).round()
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=gen)
        self.images = shapes[self.labels] + 0.4 * torch.randn(count, 144, generator=gen)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x):
        weight, choice = self.gate(x).softmax(dim=-1).max(dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (choice == e).nonzero().squeeze(-1)
            if rows.numel() == 0:
                continue
            out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        return out


class Net(nn.Module):
    def __init__(self, width=64, experts=6, layers=2):
        super().__init__()
        self.stem = nn.Linear(144, width)
        self.layers = nn.ModuleList(MoE(width, 4 * width, experts) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.head(self.norm(h))


def shard(model, mesh):
    for layer in model.layers:
        for expert in layer.experts:
            fully_shard(expert, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model, loader, optimizer, epoch):
    model.train()
    stats = torch.zeros(3)
    start = time.time()
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        scores = model(images)
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        stats += torch.tensor([loss.item() * len(labels), (scores.argmax(1) == labels).sum(), len(labels)])
        if dist.get_rank() == 0 and step % 2 == 0:
            log.info("epoch %d step %d/%d loss %.4f", epoch, step, len(loader), loss.item())
    dist.all_reduce(stats)
    if dist.get_rank() == 0:
        log.info("epoch %d loss %.4f accuracy %.3f (%.1fs)", epoch, stats[0] / stats[2], stats[1] / stats[2],
                 time.time() - start)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    dataset = Digits(12800)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=160, sampler=sampler)
    model = shard(Net(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, epoch)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
