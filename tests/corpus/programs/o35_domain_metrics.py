"""Two-rank training of a classifier over several recording domains, with per-domain metrics."""
import os
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

DOMAINS = ("studio", "street", "phone")
WORK = "/tmp/o35_domain_metrics"


class Recordings(Dataset):
    def __init__(self, counts, seed):
        gen = torch.Generator().manual_seed(seed)
        total = sum(counts)
        self.y = torch.randint(0, 5, (total,), generator=gen)
        self.x = torch.randn(total, 24, generator=gen)
        self.x[:, :5] += 2 * F.one_hot(self.y, 5)
        self.domain = torch.cat([torch.full((c,), i) for i, c in enumerate(counts)])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.domain[i]


class Metric:
    """Keeps list states, concatenated over the ranks when computed."""

    def __init__(self):
        self.states = OrderedDict()
        self.reset()

    def reset(self):
        self.states = OrderedDict(scores=[], target=[])

    def update(self, scores, target):
        self.states["scores"].append(scores.detach())
        self.states["target"].append(target)

    def sync(self):
        synced = {}
        for name, chunks in self.states.items():
            synced[name] = gather_cat(torch.cat(chunks)) if chunks else None
        return synced


class Accuracy(Metric):
    def compute(self):
        s = self.sync()
        if s["scores"] is None:
            return float("nan")
        return (s["scores"].argmax(1) == s["target"]).float().mean().item()


class Calibration(Metric):
    def compute(self, bins=10):
        s = self.sync()
        if s["scores"] is None:
            return float("nan")
        conf, pred = s["scores"].softmax(1).max(1)
        hit = (pred == s["target"]).float()
        which = (conf * bins).long().clamp(max=bins - 1)
        gap = torch.zeros(bins).index_add_(0, which, hit - conf)
        return (gap.abs().sum() / len(hit)).item()


def gather_cat(t):
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(t)]))
    longest = int(max(sizes))
    padded = torch.cat([t, t.new_zeros((longest - len(t), *t.shape[1:]))])
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([p[:int(n)] for p, n in zip(parts, sizes)])


class Checkpointer:
    """Writes from rank 0; the others wait on a group of their own."""

    def __init__(self):
        self.group = dist.new_group(backend="gloo")
        os.makedirs(WORK, exist_ok=True)

    def save(self, model, name):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), os.path.join(WORK, name))
        dist.barrier(group=self.group)


def shard(dataset):
    return Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))


def train_epoch(model, opt, loader):
    model.train()
    for x, y, _ in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def validate(model, loader, metrics):
    model.eval()
    for m in metrics.values():
        m.reset()
    for x, y, domain in loader:
        scores = model(x)
        for i, name in enumerate(DOMAINS):
            mask = domain == i
            if mask.any():
                metrics[f"{name}/acc"].update(scores[mask], y[mask])
                metrics[f"{name}/ece"].update(scores[mask], y[mask])
    return {key: m.compute() for key, m in metrics.items()}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 5)))
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    metrics = OrderedDict()
    for name in DOMAINS:
        metrics[f"{name}/acc"], metrics[f"{name}/ece"] = Accuracy(), Calibration()
    saver = Checkpointer()
    train = DataLoader(shard(Recordings((200, 300, 6), seed=1)), batch_size=32, shuffle=True)
    quick = DataLoader(shard(Recordings((60, 140, 0), seed=2)), batch_size=64)
    full = DataLoader(shard(Recordings((90, 140, 1), seed=3)), batch_size=64)
    for epoch in range(3):
        loss = train_epoch(model, opt, train)
        results = validate(model, full if epoch == 1 else quick, metrics)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.3f} " + " ".join(f"{k}={v:.3f}" for k, v in results.items()), flush=True)
        saver.save(model.module, f"epoch{epoch}.pt")
    if rank == 0:
        print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
