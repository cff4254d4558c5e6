"""Trains a patch classifier on CT volumes and evaluates it volume by volume, with the usual loader workers."""
import argparse
import resource

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))


class LesionPatches(Dataset):
    """Synthetic CT patches: lesions are bright blobs; every patch knows its volume and position."""

    def __init__(self, volumes, patches_per_volume, size=8, seed=0):
        self.volumes = volumes
        self.per_volume = patches_per_volume
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.volumes * self.per_volume

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seed * 1_000_003 + index)
        patch = rng.normal(0.0, 0.3, (1, self.size, self.size, self.size)).astype(np.float32)
        label = index % 2
        if label:
            z, y, x = rng.integers(1, self.size - 3, 3)
            patch[0, z:z + 3, y:y + 3, x:x + 3] += 1.5
        return {
            "image": patch,
            "label": label,
            "volume": index // self.per_volume,
            "position": np.array(np.unravel_index(index % self.per_volume, (4, 4, 4)), dtype=np.int64),
        }


class PatchNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv3d(1, width, 3, padding=1)
        self.conv2 = nn.Conv3d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.head(x.amax(dim=(2, 3, 4)))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def train_epoch(self, loader, epoch):
        self.model.train()
        total, seen = 0.0, 0
        for batch in loader:
            loss = F.cross_entropy(self.model(batch["image"]), batch["label"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(batch["label"])
            seen += len(batch["label"])
        print(f"epoch {epoch}: loss {total / seen:.4f}", flush=True)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        scores, labels, volumes, positions = [], [], [], []
        for step, batch in enumerate(loader):
            scores.append(self.model(batch["image"]).softmax(-1)[:, 1])
            labels.append(batch["label"])
            volumes.append(batch["volume"])
            positions.append(batch["position"])
            if step % 100 == 0:
                print(f"  evaluated {step}/{len(loader)} batches", flush=True)
        return torch.cat(scores), torch.cat(labels), torch.cat(volumes), torch.cat(positions)


def per_volume_report(scores, labels, volumes):
    hits = ((scores > 0.5) == labels.bool()).float()
    accuracy = torch.zeros(int(volumes.max()) + 1).index_add_(0, volumes, hits) / torch.bincount(volumes)
    return accuracy.mean().item(), accuracy.min().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--eval-batch-size", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    train_loader = DataLoader(LesionPatches(12, 64, seed=1), batch_size=32, shuffle=True, num_workers=args.workers)
    test_loader = DataLoader(LesionPatches(50, 64, seed=2), batch_size=args.eval_batch_size, num_workers=args.workers)
    trainer = Trainer(PatchNet(), lr=5e-3)
    for epoch in range(args.epochs):
        trainer.train_epoch(train_loader, epoch)
    scores, labels, volumes, positions = trainer.evaluate(test_loader)
    mean, worst = per_volume_report(scores, labels, volumes)
    print(f"{len(scores)} patches, {len(positions.unique(dim=0))} positions, accuracy {mean:.3f}, worst volume {worst:.3f}")


if __name__ == "__main__":
    main()
