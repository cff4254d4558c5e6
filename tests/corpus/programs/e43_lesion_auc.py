import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIZE = 24


class SliceDataset(Dataset):
    """Slices of scans; every patient has between 20 and 60 of them."""

    def __init__(self, patients, seed):
        rng = np.random.default_rng(seed)
        self.images, self.labels, self.patient = [], [], []
        for p in range(patients):
            for _ in range(int(rng.integers(20, 61))):
                label = int(rng.random() < 0.35)
                image = rng.normal(0, 1, (SIZE, SIZE)).astype(np.float32)
                if label:
                    r, c = rng.integers(4, SIZE - 8, 2)
                    image[r:r + 4, c:c + 4] += 1.6
                self.images.append(image)
                self.labels.append(label)
                self.patient.append(p)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i])[None], self.labels[i]


class PatientSampler:
    """Keeps all slices of a patient on one rank, in order."""

    def __init__(self, dataset, rank, world, max_slices=None):
        self.index = [i for i, p in enumerate(dataset.patient) if p % world == rank]
        self.index = self.index[:max_slices]

    def __iter__(self):
        return iter(self.index)

    def __len__(self):
        return len(self.index)


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
        nn.Flatten(), nn.Linear(32, 2),
    )


class RocAuc:
    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.targets = [], []

    def update(self, logits, targets):
        self.scores.append(logits.softmax(1)[:, 1])
        self.targets.append(targets.float())

    @staticmethod
    def _gather(x):
        parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    def compute(self):
        score = self._gather(torch.cat(self.scores))
        target = self._gather(torch.cat(self.targets))
        order = score.argsort()
        rank = torch.empty_like(score)
        rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
        pos = target.sum()
        neg = len(target) - pos
        return ((rank[target == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


class Trainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.train_set, self.val_set = SliceDataset(24, 0), SliceDataset(15, 1)
        self.model = DDP(make_model())
        self.opt = torch.optim.Adam(self.model.parameters(), 3e-3)
        self.metric = RocAuc()

    def log(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def train_epoch(self, epoch):
        sampler = DistributedSampler(self.train_set, shuffle=True)
        sampler.set_epoch(epoch)
        self.model.train()
        for x, y in DataLoader(self.train_set, batch_size=32, sampler=sampler):
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        self.log(f"epoch {epoch} loss {loss.item():.4f}")

    @torch.no_grad()
    def validate(self, max_slices=None):
        self.model.eval()
        self.metric.reset()
        sampler = PatientSampler(self.val_set, self.rank, self.world, max_slices)
        for x, y in DataLoader(self.val_set, batch_size=64, sampler=sampler):
            self.metric.update(self.model.module(x), y)
        return self.metric.compute()

    def run(self, epochs):
        self.log(f"sanity check auc {self.validate(max_slices=64):.4f}")
        best = 0.0
        for epoch in range(epochs):
            self.train_epoch(epoch)
            auc = self.validate()
            self.log(f"epoch {epoch} validation auc {auc:.4f}")
            if auc > best and self.rank == 0:
                best = auc
                torch.save(self.model.module.state_dict(), "/tmp/e43_lesion_auc/best.pt")


def main():
    os.makedirs("/tmp/e43_lesion_auc", exist_ok=True)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(dist.get_rank(), dist.get_world_size()).run(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
