"""Pedestrian-crossing network: traffic light class and direction of the zebra crossing.

Two heads, one loss for each; weights of the best epoch are kept.
"""
import argparse
import resource
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class CrossingDataset(Dataset):
    """Synthetic street scenes; the light is a coloured patch, the crossing a set of stripes."""

    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.size = size
        self.light = torch.randint(0, 5, (n,), generator=g)
        self.ends = torch.rand(n, 4, generator=g)
        self.noise = torch.randint(0, 2 ** 31, (n,), generator=g)

    def __len__(self):
        return len(self.light)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(int(self.noise[i]))
        image = torch.rand(3, self.size, self.size, generator=g) * 0.2
        light, ends = int(self.light[i]), self.ends[i]
        image[light % 3, : self.size // 4, : self.size // 4] += 0.5 + 0.1 * light
        x0, x1 = sorted((int(ends[0] * self.size), int(ends[2] * self.size)))
        image[:, self.size // 2 :: 4, x0 : x1 + 1] += 0.6
        return {"image": image, "light": light, "points": ends}


class CrossingNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, channels = [], 3
        for stride in (1, 2, 1, 2):
            layers += [nn.Conv2d(channels, width, 3, stride=stride, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.light_head = nn.Linear(width, 5)
        self.point_head = nn.Linear(width, 4)

    def forward(self, x):
        h = self.features(x).mean(dim=(2, 3))
        return self.light_head(h), torch.sigmoid(self.point_head(h))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.cross_entropy, self.mse = nn.CrossEntropyLoss(), nn.MSELoss()

    def losses(self, batch):
        light, points = self.model(batch["image"])
        ce = self.cross_entropy(light, batch["light"])
        mse = self.mse(points, batch["points"])
        return ce + mse, ce, mse, (light.argmax(1) == batch["light"]).float().mean()

    def train(self, loader):
        self.model.train()
        running = 0.0
        for batch in loader:
            self.optimizer.zero_grad()
            loss, _, _, _ = self.losses(batch)
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        return running / len(loader)

    def validate(self, loader):
        self.model.eval()
        val_running_loss = val_ce_loss = val_mse_loss = accuracy = 0.0
        for batch in loader:
            loss, ce, mse, acc = self.losses(batch)
            val_running_loss += loss
            val_ce_loss += ce
            val_mse_loss += mse
            accuracy += acc.item()
        n = len(loader)
        return val_running_loss / n, val_ce_loss / n, val_mse_loss / n, accuracy / n


def limit_memory(megabytes):
    """The lab machine is shared: every job stays within its share of memory."""
    page = resource.getpagesize()
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * page
    limit = used + megabytes * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--train-images", type=int, default=96)
    parser.add_argument("--val-images", type=int, default=640)
    parser.add_argument("--memory", type=int, default=900, help="share of this job in MB")
    args = parser.parse_args()
    torch.manual_seed(0)
    limit_memory(args.memory)
    train_loader = DataLoader(CrossingDataset(args.train_images, args.size, 1), args.batch_size, shuffle=True)
    val_loader = DataLoader(CrossingDataset(args.val_images, args.size, 2), args.batch_size)
    trainer, best = Trainer(CrossingNet(), lr=2e-3), float("inf")
    for epoch in range(args.epochs):
        start = time.time()
        train_loss = trainer.train(train_loader)
        print(f"epoch {epoch}: train {train_loss:.4f} ({time.time() - start:.1f} s)", flush=True)
        val_loss, ce, mse, accuracy = trainer.validate(val_loader)
        print(f"epoch {epoch}: val {val_loss:.4f} ce {ce:.4f} mse {mse:.4f} acc {accuracy:.3f}", flush=True)
        if val_loss < best:
            best = float(val_loss)
            torch.save(trainer.model.state_dict(), "crossing_best.pt")
    print(f"best validation loss {best:.4f}")


if __name__ == "__main__":
    main()
