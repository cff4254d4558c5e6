import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s | %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("shelf")

CLASSES = ["can", "box", "bottle"]
IMG, GRID = 64, 8


class ShelfDataset(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.images, self.targets = [], []
        for _ in range(count):
            image = rng.normal(0, 0.05, (3, IMG, IMG)).astype(np.float32)
            target = np.zeros((GRID, GRID, 6), np.float32)
            for _ in range(rng.integers(1, 4)):
                w, h = rng.integers(8, 24, 2)
                x, y = rng.integers(0, IMG - w), rng.integers(0, IMG - h)
                c = int(rng.integers(0, len(CLASSES)))
                image[c, y:y + h, x:x + w] += 1.0
                cx, cy = (x + w / 2) / IMG, (y + h / 2) / IMG
                gx, gy = int(cx * GRID), int(cy * GRID)
                target[gy, gx] = (1, cx * GRID - gx, cy * GRID - gy, w / IMG, h / IMG, c)
            self.images.append(torch.from_numpy(image))
            self.targets.append(torch.from_numpy(target))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.targets[i]


class GridDetector(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, c = [], 3
        for width in (16, 32, 64):
            layers += [nn.Conv2d(c, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1), nn.MaxPool2d(2)]
            c = width
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Conv2d(c, 5 + classes, 1)
        ys, xs = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
        self.register_buffer("cells", torch.stack([xs, ys], -1).float())

    def forward(self, x):
        p = self.head(self.backbone(x)).permute(0, 2, 3, 1)
        return torch.sigmoid(p[..., 0:2]), F.relu(p[..., 2:4]), p[..., 4], p[..., 5:]

    @torch.no_grad()
    def predict(self, x):
        xy, wh, conf, cls = self(x)
        xy = (xy + self.cells) / GRID * IMG
        out = torch.cat([xy, wh * IMG, torch.sigmoid(conf)[..., None], cls.softmax(-1)], -1)
        return out.flatten(1, 2)


def detection_loss(outputs, target):
    xy, wh, conf, cls = outputs
    obj = target[..., 0] > 0
    box = F.mse_loss(xy[obj], target[obj][:, 1:3]) + 5 * F.mse_loss(wh[obj], target[obj][:, 3:5])
    objectness = F.binary_cross_entropy_with_logits(conf, target[..., 0], pos_weight=torch.tensor(8.0))
    return box + objectness + F.cross_entropy(cls[obj], target[obj][:, 5].long())


def xywh2xyxy(b):
    return torch.cat([b[..., :2] - b[..., 2:4] / 2, b[..., :2] + b[..., 2:4] / 2], -1)


def bbox_iou(a, b, eps=1e-9):
    lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    return inter / (area_a + area_b - inter + eps)


def non_max_suppression(prediction, conf_thres=0.5, nms_thres=0.4):
    output = [None] * len(prediction)
    for i, pred in enumerate(prediction):
        pred = pred[pred[:, 4] >= conf_thres]
        if not pred.size(0):
            continue
        score, label = pred[:, 5:].max(1, keepdim=True)
        detections = torch.cat([xywh2xyxy(pred[:, :4]), pred[:, 4:5], score, label.float()], 1)
        detections = detections[(-pred[:, 4] * score[:, 0]).argsort()]
        keep = []
        while detections.size(0):
            overlap = bbox_iou(detections[:1, :4], detections[:, :4]) > nms_thres
            same = detections[0, -1] == detections[:, -1]
            merged = overlap & same
            weights = detections[merged, 4:5]
            detections[0, :4] = (weights * detections[merged, :4]).sum(0) / weights.sum()
            keep.append(detections[0].clone())
            detections = detections[~merged]
        output[i] = torch.stack(keep)
    return output


def evaluate(model, loader):
    model.eval()
    found = 0
    for images, _ in loader:
        for boxes in non_max_suppression(model.predict(images)):
            found += 0 if boxes is None else len(boxes)
    model.train()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    opt = parser.parse_args()
    torch.manual_seed(3)
    train = DataLoader(ShelfDataset(512, 1), batch_size=opt.batch_size, shuffle=True)
    val = DataLoader(ShelfDataset(64, 2), batch_size=opt.batch_size)
    model = GridDetector(len(CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    for epoch in range(opt.epochs):
        start = time.time()
        for i, (images, target) in enumerate(train):
            loss = detection_loss(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 8 == 0:
                log.info("epoch %d batch %d/%d loss %.4f", epoch, i, len(train), loss.item())
        log.info("epoch %d done in %.1fs, evaluating", epoch, time.time() - start)
        log.info("epoch %d detections on the validation shelves: %d", epoch, evaluate(model, val))


if __name__ == "__main__":
    main()
