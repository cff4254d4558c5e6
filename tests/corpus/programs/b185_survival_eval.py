import logging

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("survival")


class PatientRecords(Dataset):
    def __init__(self, n=146, features=20, seed=0):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n, features)).astype(np.float32)
        weights = rng.normal(size=features)
        self.time = np.exp(0.3 * self.x @ weights + rng.normal(scale=0.2, size=n)).astype(np.float32)
        self.site = (rng.random(n) < 0.55).astype(int)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.tensor([self.time[i]])


class RiskNet(nn.Module):
    def __init__(self, features=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


def concordance(pred, target):
    dp = pred[:, None] - pred[None]
    dt = target[:, None] - target[None]
    valid = dt > 0
    return ((dp > 0) & valid).sum().item() / valid.sum().item()


def collect(values, world, dst=0):
    size = torch.tensor([values.size(0)])
    sizes = [torch.zeros_like(size) for _ in range(world)]
    dist.all_gather(sizes, size)
    parts = None
    if dist.get_rank() == dst:
        parts = [values.new_zeros(int(s), *values.shape[1:]) for s in sizes]
    dist.gather(values, parts, dst=dst)
    return torch.cat(parts) if parts is not None else None


@torch.no_grad()
def evaluate(model, loader, world):
    model.eval()
    preds, targets = [], []
    for x, y in loader:
        preds.append(model(x))
        targets.append(y)
    preds = collect(torch.cat(preds), world)
    targets = collect(torch.cat(targets), world)
    model.train()
    if preds is None:
        return None
    return concordance(preds[:, 0], targets[:, 0])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.manual_seed(0)
    train_set = PatientRecords(n=256, seed=1)
    train_rows = list(range(rank, len(train_set), world))
    train_loader = DataLoader(Subset(train_set, train_rows), batch_size=16, shuffle=True)
    val_set = PatientRecords(seed=2)
    val_rows = np.flatnonzero(val_set.site == rank).tolist()
    val_loader = DataLoader(Subset(val_set, val_rows), batch_size=32)
    log.info("%d training records, %d validation records", len(train_rows), len(val_rows))
    model = DDP(RiskNet())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(6):
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), torch.log(y))
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.4f", epoch, loss.item())
        if (epoch + 1) % 3 == 0:
            score = evaluate(model, val_loader, world)
            if rank == 0:
                log.info("epoch %d c-index %.4f", epoch, score)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
