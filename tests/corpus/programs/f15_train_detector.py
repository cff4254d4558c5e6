"""Small detection-style training with per-class validation metrics (2 processes, gloo)."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = ["car", "person", "bicycle", "bus", "truck"]


class BoxCrops(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 32, generator=g)
        self.y = torch.randint(0, len(CLASSES) - 1, (n,), generator=g)
        self.y[n // 2] = len(CLASSES) - 1

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def get_loader(ds, train):
    sampler = DistributedSampler(ds, shuffle=train)
    return DataLoader(ds, batch_size=16, sampler=sampler), sampler


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = {}
    losses = []
    for x, y in loader:
        logits = model.module(x)
        losses.append(F.cross_entropy(logits, y))
        for pred, gt in zip(logits.argmax(1).tolist(), y.tolist()):
            hits.setdefault(CLASSES[gt], []).append(float(pred == gt))
    metrics = {f"recall/{name}": torch.tensor(v).mean() for name, v in hits.items()}
    metrics["val_loss"] = torch.stack(losses).mean()
    model.train()
    return metrics


def reduce_dict(metrics):
    reduced = {}
    for name in sorted(metrics):
        value = metrics[name].clone()
        dist.all_reduce(value)
        reduced[name] = value.item() / dist.get_world_size()
    return reduced


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, len(CLASSES))))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    train_loader, sampler = get_loader(BoxCrops(256, 1), train=True)
    val_loader, _ = get_loader(BoxCrops(64, 2), train=False)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        metrics = reduce_dict(evaluate(model, val_loader))
        if rank == 0:
            print(f"epoch {epoch} " + " ".join(f"{k}={v:.3f}" for k, v in metrics.items()), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
