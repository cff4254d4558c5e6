"""Classifier on colposcopy images of different size (synthetic here), torch only."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ScaleShortestSide:
    """Scale so that the shortest side becomes `size`, keeping the aspect ratio."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        _, h, w = image.shape
        factor = self.size / min(h, w)
        new_h, new_w = int(h * factor), int(w * factor)
        return F.interpolate(image[None], (new_h, new_w), mode="bilinear", align_corners=False)[0]


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        _, h, w = image.shape
        top = max((h - self.size) // 2, 0)
        left = max((w - self.size) // 2, 0)
        return image[:, top:top + self.size, left:left + self.size].contiguous()


class RandomFlip:
    def __init__(self, p):
        self.p = p

    def __call__(self, image):
        return image.flip(-1) if torch.rand(()) < self.p else image


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ColposcopyDataset(Dataset):
    def __init__(self, records, transform):
        self.records = records
        self.transform = transform

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        height, width, label = self.records[index]
        gen = torch.Generator().manual_seed(index)
        image = torch.rand((3, height, width), generator=gen) * 0.5 + label * 0.1
        return self.transform(image), label


def make_records(count):
    cameras = [(300, 400), (400, 300), (320, 320), (450, 600), (512, 384)]
    records = [cameras[i % len(cameras)] + (i % 3,) for i in range(count)]
    for i in range(count * 2 // 3 + 7, count, 29):
        records[i] = (343, 456, i % 3)
    return records


class SmallNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.classifier = nn.Linear(16 * 16, classes)

    def forward(self, x):
        return self.classifier(self.features(x))


def train_one_epoch(model, loader, optimizer, epoch):
    model.train()
    for step, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=360)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    torch.manual_seed(7)
    transform = Compose([ScaleShortestSide(args.size), CenterCrop(args.size), RandomFlip(0.5)])
    dataset = ColposcopyDataset(make_records(args.images), transform)
    loader = DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers)
    model = SmallNet(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(2):
        train_one_epoch(model, loader, optimizer, epoch)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
