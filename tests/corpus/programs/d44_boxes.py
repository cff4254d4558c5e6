import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

OUT = "/tmp/d44_boxes_run"


class BoxScenes(Dataset):
    def __init__(self, n, seed, shaky=0.0, side=24):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.randn(n, 1, side, side, generator=g) * 0.3
        self.boxes = torch.zeros(n, 4)
        self.labels = torch.randint(0, 3, (n,), generator=g)
        for k in range(n):
            w, h = torch.randint(6, 12, (2,), generator=g).tolist()
            x = int(torch.randint(0, side - w, (1,), generator=g))
            y = int(torch.randint(0, side - h, (1,), generator=g))
            self.images[k, 0, y:y + h, x:x + w] += 0.8 + 0.5 * self.labels[k]
            self.boxes[k] = torch.tensor([x, y, x + w, y + h]) / side
        if shaky:
            odd = torch.arange(1, n, 2)
            self.boxes[odd] = self.boxes[odd] * (1 - shaky) + shaky * torch.rand(len(odd), 4, generator=g)
            self.labels[odd] = torch.randint(0, 3, (len(odd),), generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.boxes[i], self.labels[i]


class OneBoxDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten())
        self.box = nn.Linear(32 * 36, 4)
        self.cls = nn.Linear(32 * 36, 3)

    def forward(self, x):
        h = self.body(x)
        return self.box(h).sigmoid(), self.cls(h)


def detection_loss(out, boxes, labels):
    return 5 * F.smooth_l1_loss(out[0], boxes) + F.cross_entropy(out[1], labels)


class EarlyStopping:
    def __init__(self, patience, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad = float("inf"), 0

    def update(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
            return False
        self.bad += 1
        return self.bad >= self.patience


class Runner:
    def __init__(self, rank, world):
        self.rank = rank
        train_set, val_set = BoxScenes(640, 1), BoxScenes(200, 2, shaky=0.7)
        self.train_sampler = DistributedSampler(train_set, world, rank, shuffle=True, seed=3)
        self.train_loader = DataLoader(train_set, 32, sampler=self.train_sampler)
        val_sampler = DistributedSampler(val_set, world, rank, shuffle=False)
        self.val_loader = DataLoader(val_set, 50, sampler=val_sampler)
        self.model = DDP(OneBoxDetector())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.stopper = EarlyStopping(patience=3)

    def train_epoch(self, epoch):
        self.train_sampler.set_epoch(epoch)
        self.model.train()
        for images, boxes, labels in self.train_loader:
            loss = detection_loss(self.model(images), boxes, labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        net = self.model.module.eval()
        total, n = 0.0, 0
        for images, boxes, labels in self.val_loader:
            total += detection_loss(net(images), boxes, labels).item() * len(images)
            n += len(images)
        return total / n

    def checkpoint(self, epoch):
        if self.rank == 0:
            os.makedirs(OUT, exist_ok=True)
            torch.save({"epoch": epoch, "model": self.model.module.state_dict()},
                       os.path.join(OUT, "last.pt"))

    def run(self, max_epochs):
        for epoch in range(max_epochs):
            train_loss = self.train_epoch(epoch)
            val_loss = self.validate()
            self.checkpoint(epoch)
            if self.rank == 0:
                print(f"epoch {epoch} train {train_loss:.4f} val {val_loss:.4f}", flush=True)
            if self.stopper.update(val_loss):
                break
        return epoch + 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    runner = Runner(rank, world)
    epochs = runner.run(max_epochs=30)
    if rank == 0:
        print(f"trained {epochs} epochs, best val {runner.stopper.best:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
