"""Train a small classifier on array images with light augmentation in the loader workers."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, img, rng):
        y = rng.integers(0, img.shape[0] - self.size + 1)
        x = rng.integers(0, img.shape[1] - self.size + 1)
        return img[y:y + self.size, x:x + self.size]


class RandomFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img, rng):
        return img[:, ::-1] if rng.random() < self.p else img


class Normalize:
    def __call__(self, img, rng):
        img -= img.mean()
        img /= img.std() + 1e-6
        return img


class ToTensor:
    def __call__(self, img, rng):
        return torch.from_dlpack(img).permute(2, 0, 1)


class ArrayImages(Dataset):
    def __init__(self, n, transforms, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.random((n, 40, 40, 3), dtype=np.float32)
        self.labels = rng.integers(0, 10, n)
        self.transforms = transforms

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        img = self.images[i]
        for t in self.transforms:
            img = t(img, rng)
        return img, int(self.labels[i])


def evaluate(net, loader):
    net.eval()
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(0)
    train = ArrayImages(512, [RandomCrop(32), Normalize(), RandomFlip(0.02), ToTensor()])
    val = ArrayImages(128, [RandomCrop(32), Normalize(), ToTensor()], seed=1)
    train_loader = DataLoader(train, batch_size=32, shuffle=True, num_workers=2)
    val_loader = DataLoader(val, batch_size=64)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    with torch.no_grad():
        print(f"before training: val acc {evaluate(net, val_loader):.3f}", flush=True)
    for epoch in range(3):
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
