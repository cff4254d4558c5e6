import ctypes
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGE_SIZE = 138
RAW_SIZE = 160
NUM_PROTOTYPES = 8


def build_resize():
    out = os.path.join(tempfile.mkdtemp(prefix="imgproc_"), "libresize.so")
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "c202_resize.c"), "-o", out])
    lib = ctypes.CDLL(out)
    lib.resize_linear_u8.restype = None
    lib.resize_linear_u8.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 3 + [ctypes.c_void_p] + [ctypes.c_int] * 2
    return lib


IMGPROC = build_resize()


def resize(image, size):
    image = np.ascontiguousarray(image, dtype=np.uint8)
    h, w, c = image.shape
    out = np.empty((size[1], size[0], c), dtype=np.uint8)
    IMGPROC.resize_linear_u8(image.ctypes.data, h, w, c, out.ctypes.data, size[1], size[0])
    return out


class Resize:
    def __init__(self, size):
        self.size = size

    def __call__(self, image, masks, boxes):
        h, w, _ = image.shape
        image = resize(image, (self.size, self.size))
        masks = masks.transpose((1, 2, 0))
        masks = resize(masks, (self.size, self.size))
        masks = masks.transpose((2, 0, 1))
        scale = np.array([self.size / w, self.size / h] * 2, dtype=np.float32)
        return image, masks, boxes * scale


class RandomMirror:
    def __init__(self, rng):
        self.rng = rng

    def __call__(self, image, masks, boxes):
        if self.rng.random() < 0.5:
            width = image.shape[1]
            image = image[:, ::-1]
            masks = masks[:, :, ::-1]
            boxes = boxes.copy()
            boxes[:, 0::2] = width - boxes[:, 2::-2]
        return image, masks, boxes


class CellInstances(Dataset):
    """Microscopy tiles with one mask for each annotated cell."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.transforms = [RandomMirror(self.rng), Resize(IMAGE_SIZE)]
        self.records = [self.draw() for _ in range(count)]

    def draw(self):
        cells = 1 + int(self.rng.poisson(1.1))
        image = self.rng.normal(60, 12, (RAW_SIZE, RAW_SIZE, 3)).clip(0, 255)
        yy, xx = np.mgrid[:RAW_SIZE, :RAW_SIZE]
        masks, boxes = [], []
        for _ in range(cells):
            cx, cy = self.rng.integers(20, RAW_SIZE - 20, 2)
            rx, ry = self.rng.integers(8, 18, 2)
            mask = ((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2 <= 1
            image[mask] += self.rng.uniform(60, 120, 3)
            masks.append(mask)
            boxes.append([cx - rx, cy - ry, cx + rx, cy + ry])
        return (image.clip(0, 255).astype(np.uint8), np.stack(masks).astype(np.uint8) * 255,
                np.array(boxes, dtype=np.float32))

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        image, masks, boxes = self.records[i]
        for transform in self.transforms:
            image, masks, boxes = transform(image, masks, boxes)
        image = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).float() / 255
        masks = torch.from_numpy(np.ascontiguousarray(masks)).float() / 255
        return image, masks, torch.from_numpy(boxes)


class ProtoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=2, dilation=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, NUM_PROTOTYPES, 1))
        self.coef = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, NUM_PROTOTYPES))

    def forward(self, images, boxes):
        protos = self.backbone(images)
        return [torch.einsum("nk,khw->nhw", self.coef(b / IMAGE_SIZE), p) for p, b in zip(protos, boxes)]


def collate(batch):
    images, masks, boxes = zip(*batch)
    return torch.stack(images), masks, boxes


def main():
    torch.manual_seed(0)
    loader = DataLoader(CellInstances(120, seed=5), batch_size=4, shuffle=True, collate_fn=collate)
    net = ProtoNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, weight_decay=5e-4)
    print("Begin training!", flush=True)
    for epoch in range(2):
        began = time.time()
        for iteration, (images, masks, boxes) in enumerate(loader):
            preds = net(images, boxes)
            loss = sum(F.binary_cross_entropy_with_logits(p, m) for p, m in zip(preds, masks)) / len(masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if iteration % 2 == 0:
                print(f"[{epoch:3d}] {iteration:5d} || M: {loss.item():.3f} || {time.time() - began:.1f}s", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
