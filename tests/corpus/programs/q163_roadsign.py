"""Road-sign classifier on crops cut from dash-cam frames, with weather augmentation."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class RandomFog:
    """Scatter translucent discs from the centre of the image towards its border."""

    def __init__(self, coef_lower=0.1, coef_upper=0.2, alpha=0.08, p=0.3):
        self.coef_lower, self.coef_upper, self.alpha, self.p = coef_lower, coef_upper, alpha, p

    def haze_points(self, height, width, coef):
        hw = max(1, int(width // 3 * coef))
        points, index = [], 1
        midx, midy = width // 2 - 2 * hw, height // 2 - hw
        while midx > -hw or midy > -hw:
            for _ in range(hw // 10 * index):
                x = random.randint(min(midx, width - midx - hw), max(midx, width - midx - hw))
                y = random.randint(min(midy, height - midy - hw), max(midy, height - midy - hw))
                points.append((x, y))
            midx -= 3 * hw * width // (height + width)
            midy -= 3 * hw * height // (height + width)
            index += 1
        return hw, points

    def __call__(self, image):
        if random.random() >= self.p:
            return image
        height, width = image.shape[:2]
        coef = random.uniform(self.coef_lower, self.coef_upper)
        hw, points = self.haze_points(height, width, coef)
        yy, xx = np.mgrid[:height, :width]
        for x, y in points[:200]:
            disc = ((xx - x) ** 2 + (yy - y) ** 2 <= hw * hw)[..., None]
            image = np.where(disc, image * (1 - self.alpha) + self.alpha, image)
        return image


class RandomBrightness:
    def __init__(self, limit=0.2):
        self.limit = limit

    def __call__(self, image):
        return np.clip(image * (1 + random.uniform(-self.limit, self.limit)), 0, 1)


class SignCrops(Dataset):
    """Crops keep the size of their box; they are resized after the augmentation."""

    def __init__(self, n, n_classes, seed, out_size=32, transforms=()):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, n_classes, n)
        self.heights = rng.integers(90, 160, n)
        self.widths = rng.integers(90, 160, n)
        posts = rng.choice(np.arange(n // 4, n), size=n // 6, replace=False)
        self.widths[posts] = rng.integers(24, 34, len(posts))
        self.out_size, self.transforms = out_size, transforms

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image = rng.random((self.heights[i], self.widths[i], 3), dtype=np.float32) * 0.4
        image[:, :, self.labels[i] % 3] += 0.15 * (1 + self.labels[i] // 3)
        for transform in self.transforms:
            image = transform(image)
        tensor = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32)).permute(2, 0, 1)
        tensor = F.interpolate(tensor[None], size=(self.out_size, self.out_size), mode="bilinear")[0]
        return tensor, int(self.labels[i])


def build_model(n_classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--crops", type=int, default=480)
    parser.add_argument("--classes", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(4)
    data = SignCrops(args.crops, args.classes, seed=7, transforms=[RandomBrightness(), RandomFog()])
    loader = DataLoader(data, args.batch_size, num_workers=args.workers)
    model = build_model(args.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for step, (images, labels) in enumerate(loader, 1):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 2 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {total / step:.4f}", flush=True)
        torch.save(model.state_dict(), "roadsign.pt")
    print("finished")


if __name__ == "__main__":
    main()
