import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ["wall", "floor", "cabinet", "bed", "chair", "sofa", "table", "door"]
IMAGE_H, IMAGE_W = 240, 320


def rescale(array, scale):
    out = np.asarray(array, dtype=np.float64)
    for axis in (0, 1):
        n = out.shape[axis]
        m = int(round(n * scale))
        pos = (np.arange(m) + 0.5) / m * n - 0.5
        lo = np.floor(pos).astype(int)
        hi = np.minimum(lo + 1, n - 1)
        frac = pos - lo
        shape = [1] * out.ndim
        shape[axis] = -1
        frac = frac.reshape(shape)
        out = np.take(out, lo, axis=axis) * (1 - frac) + np.take(out, hi, axis=axis) * frac
    return out.astype(np.float32)


class SceneScale(object):
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, sample):
        return {key: rescale(value, self.scale) for key, value in sample.items()}


class ToTensor(object):
    def __call__(self, sample):
        label = torch.from_numpy(sample["label"])
        return {
            "image": torch.from_numpy(sample["image"].transpose(2, 0, 1) / 255.0 - 0.5),
            "depth": torch.from_numpy(sample["depth"][None] / 8.0 - 0.5),
            "label": label,
            "label2": label[::2, ::2].contiguous(),
        }


class RoomScenes(Dataset):
    def __init__(self, count, transforms):
        self.count = count
        self.transforms = transforms

    def __len__(self):
        return self.count

    def __getitem__(self, idx):
        rng = np.random.default_rng(1000 + idx)
        label = np.zeros((IMAGE_H, IMAGE_W), dtype=np.uint8)
        depth = rng.uniform(3.0, 6.0) * np.ones((IMAGE_H, IMAGE_W))
        for _ in range(rng.integers(4, 9)):
            h, w = rng.integers(30, 110, size=2)
            y, x = rng.integers(0, IMAGE_H - h), rng.integers(0, IMAGE_W - w)
            label[y:y + h, x:x + w] = rng.integers(1, len(CLASSES) + 1)
            depth[y:y + h, x:x + w] = rng.uniform(0.5, 3.0)
        image = np.stack([label * 25.0] * 3, -1) + rng.normal(0, 10, size=(IMAGE_H, IMAGE_W, 3))
        sample = {"image": image, "depth": depth, "label": label}
        for t in self.transforms:
            sample = t(sample)
        return sample


class CrossEntropyLoss2d(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.ce_loss = nn.CrossEntropyLoss(torch.from_numpy(weight).float(), reduction="none")

    def forward(self, inputs_scales, targets_scales):
        losses = []
        for inputs, targets in zip(inputs_scales, targets_scales):
            mask = targets > 0
            targets_m = targets.clone()
            targets_m[mask] -= 1
            loss_all = self.ce_loss(inputs, targets_m.long())
            losses.append(torch.sum(torch.masked_select(loss_all, mask)) / torch.sum(mask.float()))
        return sum(losses)


class RedNetSmall(nn.Module):
    def __init__(self, num_classes, width=16):
        super().__init__()
        self.rgb = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.depth = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.out2 = nn.Conv2d(width, num_classes, 1)
        self.out = nn.ConvTranspose2d(width, num_classes, 2, stride=2)

    def forward(self, rgb, depth):
        fused = self.mid(self.rgb(rgb) + self.depth(depth))
        return self.out(fused), self.out2(fused)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=5)
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)

    train_data = RoomScenes(200, [SceneScale(args.scale), ToTensor()])
    loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    med_frq = np.linspace(0.6, 1.8, len(CLASSES))
    criterion = CrossEntropyLoss2d(med_frq)
    model = RedNetSmall(len(CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9)
    start = time.time()
    for epoch in range(args.epochs):
        for step, sample in enumerate(loader):
            pred_scales = model(sample["image"], sample["depth"])
            loss = criterion(pred_scales, [sample["label"], sample["label2"]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} time {time.time() - start:.1f}", flush=True)
    print("training completed", flush=True)


if __name__ == "__main__":
    main()
