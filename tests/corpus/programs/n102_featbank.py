"""Build a feature bank of patch embeddings for nearest-neighbour anomaly scoring."""
import argparse
import resource
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class PatchDataset(Dataset):
    def __init__(self, count, size=16, seed=0):
        self.count = count
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seed + index)
        patch = rng.normal(size=(1, self.size, self.size)).astype(np.float32)
        centre = rng.integers(0, 4096, size=2)
        return {"patch": patch, "centre": centre, "index": index}


class PatchEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, dim),
        )
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        return self.body(x)


def setup_limits(files):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def train(encoder, loader, epochs):
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            score = encoder.head(encoder(batch["patch"])).squeeze(1)
            target = batch["patch"].abs().mean(dim=(1, 2, 3))
            loss = (score - target).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


@torch.no_grad()
def build_bank(encoder, loader):
    encoder.eval()
    features, centres, indices = [], [], []
    for step, batch in enumerate(loader):
        features.append(encoder(batch["patch"]).numpy())
        centres.append(batch["centre"].numpy())
        indices.append(batch["index"])
        if step % 200 == 0:
            print(f"bank: {step}/{len(loader)} batches", flush=True)
    return np.concatenate(features), np.concatenate(centres), torch.cat(indices)


def score(bank, queries, k=5):
    distances = torch.cdist(torch.from_numpy(queries), torch.from_numpy(bank))
    return distances.topk(k, largest=False).values.mean(dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-patches", type=int, default=1200)
    parser.add_argument("--bank-patches", type=int, default=12000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--max-open-files", type=int, default=2048)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    setup_limits(args.max_open_files)

    encoder = PatchEncoder()
    train_loader = DataLoader(PatchDataset(args.train_patches), batch_size=args.batch_size,
                              shuffle=True, num_workers=args.num_workers)
    train(encoder, train_loader, epochs=2)

    bank_loader = DataLoader(PatchDataset(args.bank_patches, seed=10_000), batch_size=args.batch_size,
                             num_workers=args.num_workers)
    started = time.time()
    bank, centres, indices = build_bank(encoder, bank_loader)
    print(f"bank {bank.shape} built in {time.time() - started:.1f}s")

    print("self distance", score(bank, bank[:64]).mean().item(), "centres", centres.shape, len(indices))


if __name__ == "__main__":
    main()
