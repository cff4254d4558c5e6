import datetime
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class LaneDataset(Dataset):
    def __init__(self, n=640):
        gen = torch.Generator().manual_seed(5)
        self.images = torch.rand(n, 3, 32, 32, generator=gen)
        self.lanes = (self.images.mean(1, keepdim=True) > 0.5).float()
        self.area = self.lanes.sum((1, 2, 3))
        self.images[333] = 0.0
        self.lanes[333] = 0.0
        self.area[333] = 0.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.lanes[i], self.area[i]


class ModelWithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(12, 1, 1)

    def forward(self, images, lanes, area):
        logits = self.head(self.encoder(images))
        prob = logits.sigmoid()
        inter = (prob * lanes).sum((1, 2, 3))
        tversky = 1 - inter / area
        return nn.functional.binary_cross_entropy_with_logits(logits, lanes) + tversky.mean()


def train_epoch(model, loader, opt, epoch, rank):
    last_loss, seen = 0.0, 0
    for it, (images, lanes, area) in enumerate(loader):
        loss = model(images, lanes, area)
        if torch.isnan(loss) or torch.isinf(loss):
            print(f"[rank {rank}] Loss is {loss.item()} in iteration {it}, skip this batch", flush=True)
            continue
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        last_loss, seen = loss.item(), seen + len(images)
    print(f"[rank {rank}] epoch {epoch} loss {last_loss:.4f} on {seen} images", flush=True)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=25))
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = LaneDataset()
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=1)
    model = DDP(ModelWithLoss())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, opt, epoch, rank)
        dist.barrier()
        if rank == 0:
            os.makedirs("/tmp/l16_run", exist_ok=True)
            torch.save(model.module.state_dict(), f"/tmp/l16_run/epoch{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
