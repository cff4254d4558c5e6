"""Fine-tune a head on cached backbone features, 2 processes; the cache folder has a quota."""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class FeatureCache:
    def __init__(self, folder, quota):
        self.folder, self.quota = folder, quota
        self.recent = {}
        os.makedirs(folder, exist_ok=True)

    def path(self, key):
        return os.path.join(self.folder, f"{key:06d}.pt")

    def put(self, key, value):
        torch.save(value, self.path(key))

    def get(self, key):
        self.recent.pop(key, None)
        self.recent[key] = True
        return torch.load(self.path(key))

    def evict(self):
        files = sorted(os.listdir(self.folder))
        order = [f for f in files if int(f[:-3]) not in self.recent]
        order += [os.path.basename(self.path(k)) for k in self.recent]
        for name in order[: max(0, len(files) - self.quota)]:
            os.remove(os.path.join(self.folder, name))


class FeatureDataset(Dataset):
    def __init__(self, cache, size):
        self.cache, self.size = cache, size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.cache.get(i)


def extract_features(cache, size):
    backbone = nn.Sequential(nn.Linear(48, 128), nn.ReLU())
    with torch.no_grad():
        for i in range(size):
            cache.put(i, (backbone(torch.randn(48)), i % 7))


def train_one_epoch(model, loader, opt, epoch):
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0 and step % 4 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    cache = FeatureCache(folder, quota=190)
    if rank == 0:
        extract_features(cache, 200)
    dist.barrier()
    dataset = FeatureDataset(cache, 200)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    model = DDP(nn.Linear(128, 7))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        train_one_epoch(model, loader, opt, epoch)
        if rank == 0:
            torch.save(model.module.state_dict(), "/tmp/head.pt")
            cache.evict()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else f"/tmp/feature_cache_{os.getppid()}")
