import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
MAX_BOXES = 10


class ShelfImages(Dataset):
    def __init__(self, n, size=208, num_classes=4, seed=0):
        self.rng = np.random.default_rng(seed)
        self.images = np.zeros((n, 3, size, size), dtype=np.float32)
        self.targets = np.zeros((n, MAX_BOXES, 5), dtype=np.float32)
        for i in range(n):
            self.images[i] = 0.1 * self.rng.standard_normal((3, size, size))
            for k in range(self.rng.integers(1, 6)):
                cls = self.rng.integers(num_classes)
                w, h = self.rng.uniform(0.1, 0.35, 2)
                cx, cy = self.rng.uniform(w / 2, 1 - w / 2), self.rng.uniform(h / 2, 1 - h / 2)
                x1, x2 = int((cx - w / 2) * size), int((cx + w / 2) * size)
                y1, y2 = int((cy - h / 2) * size), int((cy + h / 2) * size)
                self.images[i, cls % 3, y1:y2, x1:x2] += 0.5 + 0.5 * (cls // 3)
                self.targets[i, k] = (cls, cx, cy, w, h)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.from_numpy(self.targets[i].reshape(-1))


def fit_anchors(targets, num_anchors, grid, iters=30):
    wh = targets.reshape(-1, 5)
    wh = wh[wh[:, 3] > 0][:, 3:] * grid
    centers = wh[np.linspace(0, len(wh) - 1, num_anchors).astype(int)]
    for _ in range(iters):
        inter = np.minimum(wh[:, None], centers[None]).prod(-1)
        iou = inter / (wh.prod(-1)[:, None] + centers.prod(-1)[None] - inter)
        own = iou.argmax(1)
        centers = np.stack([wh[own == k].mean(0) if (own == k).any() else centers[k] for k in range(num_anchors)])
    return torch.tensor(centers, dtype=torch.float32)


def bbox_ious(a, b):
    left, right = torch.min(a[0] - a[2] / 2, b[0] - b[2] / 2), torch.max(a[0] + a[2] / 2, b[0] + b[2] / 2)
    top, bottom = torch.min(a[1] - a[3] / 2, b[1] - b[3] / 2), torch.max(a[1] + a[3] / 2, b[1] + b[3] / 2)
    cw, ch = a[2] + b[2] - (right - left), a[3] + b[3] - (bottom - top)
    inter = cw.clamp(min=0) * ch.clamp(min=0)
    return inter / (a[2] * a[3] + b[2] * b[3] - inter)


class RegionLoss(nn.Module):
    def __init__(self, num_classes, anchors, noobject_scale=1.0, object_scale=5.0, thresh=0.6):
        super().__init__()
        self.num_classes, self.anchors, self.num_anchors = num_classes, anchors, len(anchors)
        self.noobject_scale, self.object_scale, self.thresh = noobject_scale, object_scale, thresh

    def build_targets(self, pred_boxes, target, nH, nW):
        nB, nA = target.size(0), self.num_anchors
        conf_mask = torch.ones(nB, nA, nH, nW) * self.noobject_scale
        coord_mask, tcls = torch.zeros(nB, nA, nH, nW), torch.zeros(nB, nA, nH, nW, dtype=torch.long)
        tcoord, tconf = torch.zeros(4, nB, nA, nH, nW), torch.zeros(nB, nA, nH, nW)
        nAnchors = nA * nH * nW
        scale = torch.tensor([nW, nH, nW, nH], dtype=torch.float32)
        for b in range(nB):
            cur_pred_boxes = pred_boxes[b * nAnchors:(b + 1) * nAnchors].t()
            cur_ious = torch.zeros(nAnchors)
            boxes = [t for t in target[b].view(-1, 5) if t[3] > 0]
            for t in boxes:
                cur_gt_boxes = (t[1:] * scale).repeat(nAnchors, 1).t()
                cur_ious = torch.max(cur_ious, bbox_ious(cur_pred_boxes, cur_gt_boxes))
            conf_mask[b][cur_ious > self.thresh] = 0
            for t in boxes:
                gx, gy, gw, gh = t[1:] * scale
                gi, gj = int(gx), int(gy)
                inter = torch.min(self.anchors, torch.stack([gw, gh])).prod(1)
                n = int((inter / (self.anchors.prod(1) + gw * gh - inter)).argmax())
                coord_mask[b, n, gj, gi], conf_mask[b, n, gj, gi], tconf[b, n, gj, gi] = 1, self.object_scale, 1
                aw, ah = self.anchors[n]
                tcoord[:, b, n, gj, gi] = torch.stack([gx - gi, gy - gj, torch.log(gw / aw), torch.log(gh / ah)])
                tcls[b, n, gj, gi] = int(t[0])
        return conf_mask, coord_mask, tcoord, tconf, tcls

    def forward(self, output, target):
        nB, nA, nC, nH, nW = len(output), self.num_anchors, self.num_classes, output.size(2), output.size(3)
        output = output.view(nB, nA, 5 + nC, nH, nW)
        xy, wh, conf = output[:, :, :2].sigmoid(), output[:, :, 2:4], output[:, :, 4].sigmoid()
        gy, gx = torch.meshgrid(torch.arange(nH), torch.arange(nW), indexing="ij")
        with torch.no_grad():
            centers = xy + torch.stack([gx, gy]).float()
            sizes = wh.exp() * self.anchors.view(1, nA, 2, 1, 1)
            pred_boxes = torch.cat([centers, sizes], 2).permute(0, 1, 3, 4, 2).reshape(-1, 4)
            conf_mask, coord_mask, tcoord, tconf, tcls = self.build_targets(pred_boxes, target, nH, nW)
        coords = torch.cat([xy, wh], 2).permute(2, 0, 1, 3, 4)
        loss_coord = (coord_mask * (coords - tcoord) ** 2).sum() / 2
        loss_conf = (conf_mask * (conf - tconf) ** 2).sum() / 2
        logits = output[:, :, 5:].permute(0, 1, 3, 4, 2)[coord_mask.bool()]
        return (loss_coord + loss_conf + nn.functional.cross_entropy(logits, tcls[coord_mask.bool()], reduction="sum")) / nB


def make_model(num_anchors, num_classes):
    layers, cin = [], 3
    for cout in (16, 24, 32, 48):
        layers += [nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1)]
        cin = cout
    return nn.Sequential(*layers, nn.Conv2d(cin, num_anchors * (5 + num_classes), 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--images", type=int, default=320)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = ShelfImages(args.images)
    anchors = fit_anchors(data.targets, 5, 13)
    logging.info("%d images, anchors %s", len(data), [tuple(round(v, 2) for v in a) for a in anchors.tolist()])
    model, region_loss = make_model(5, 4), RegionLoss(4, anchors)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    for epoch in range(args.epochs):
        t0, total = time.time(), 0.0
        for images, target in DataLoader(data, batch_size=args.batch, shuffle=True):
            loss = region_loss(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        logging.info("epoch %d loss %.3f, %.1f samples/s", epoch, total, len(data) / (time.time() - t0))
