import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data as data

logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("ssd")

cfg = {"num_classes": 4, "min_dim": 64, "feature_map": 8, "max_iter": 1200, "lr_steps": (800, 1000),
       "scales": (0.15, 0.3, 0.5), "variance": (0.1, 0.2)}


class SignDetection(data.Dataset):
    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.samples = []
        for _ in range(count):
            image = rng.normal(0, 0.1, (3, cfg["min_dim"], cfg["min_dim"])).astype(np.float32)
            boxes = []
            for _ in range(rng.integers(1, 4)):
                side = int(rng.integers(10, 28))
                x, y = rng.integers(0, cfg["min_dim"] - side, 2)
                label = int(rng.integers(0, cfg["num_classes"] - 1))
                image[label, y:y + side, x:x + side] += 1
                boxes.append([x, y, x + side, y + side, label * cfg["min_dim"]])
            target = torch.tensor(boxes, dtype=torch.float32) / cfg["min_dim"]
            self.samples.append((torch.from_numpy(image), target))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def detection_collate(batch):
    return torch.stack([image for image, _ in batch]), [target for _, target in batch]


def prior_boxes():
    step = (torch.arange(cfg["feature_map"]) + 0.5) / cfg["feature_map"]
    cy, cx = torch.meshgrid(step, step, indexing="ij")
    priors = [torch.stack([cx, cy, torch.full_like(cx, s), torch.full_like(cx, s)], -1) for s in cfg["scales"]]
    return torch.stack(priors, 2).reshape(-1, 4)


def point_form(p):
    return torch.cat([p[:, :2] - p[:, 2:] / 2, p[:, :2] + p[:, 2:] / 2], 1)


def jaccard(a, b):
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    area = lambda t: (t[:, 2:] - t[:, :2]).prod(1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


class MultiBoxLoss(nn.Module):
    def __init__(self, threshold=0.5, negpos_ratio=3):
        super().__init__()
        self.threshold, self.negpos_ratio = threshold, negpos_ratio

    def match(self, target, priors):
        overlap = jaccard(target[:, :4], point_form(priors))
        best, index = overlap.max(0)
        top = overlap.argmax(1)
        best[top], index[top] = 2.0, torch.arange(len(target))
        conf = (target[index, 4] + 1).round().long()
        conf[best < self.threshold] = 0
        box = target[index, :4]
        g = (box[:, :2] + box[:, 2:]) / 2 - priors[:, :2]
        wh = ((box[:, 2:] - box[:, :2]) / priors[:, 2:]).log() / cfg["variance"][1]
        return torch.cat([g / (cfg["variance"][0] * priors[:, 2:]), wh], 1), conf

    def forward(self, loc, conf, priors, targets):
        matched = [self.match(t, priors) for t in targets]
        loc_t, conf_t = torch.stack([m[0] for m in matched]), torch.stack([m[1] for m in matched])
        pos = conf_t > 0
        loss_l = F.smooth_l1_loss(loc[pos], loc_t[pos], reduction="sum")
        ce = F.cross_entropy(conf.transpose(1, 2), conf_t, reduction="none")
        rank = ce.detach().masked_fill(pos, 0).argsort(1, descending=True).argsort(1)
        neg = rank < (self.negpos_ratio * pos.sum(1, keepdim=True))
        n = pos.sum()
        return loss_l / n, ce[pos | neg].sum() / n


class SSD(nn.Module):
    def __init__(self):
        super().__init__()
        self.vgg = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        k = len(cfg["scales"])
        self.loc, self.conf = nn.Conv2d(64, k * 4, 3, padding=1), nn.Conv2d(64, k * cfg["num_classes"], 3, padding=1)

    def forward(self, x):
        x = self.vgg(x)
        flat = lambda t, c: t.permute(0, 2, 3, 1).reshape(x.size(0), -1, c)
        return flat(self.loc(x), 4), flat(self.conf(x), cfg["num_classes"])


def adjust_learning_rate(optimizer, gamma, step, base):
    for group in optimizer.param_groups:
        group["lr"] = base * gamma ** step


def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--start_iter", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = SignDetection(700)
    net, criterion, priors = SSD(), MultiBoxLoss(), prior_boxes()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    data_loader = data.DataLoader(dataset, args.batch_size, shuffle=True, collate_fn=detection_collate, drop_last=True)
    log.info("training SSD on %d images, %d iterations", len(dataset), cfg["max_iter"])
    step_index = 0
    batch_iterator = iter(data_loader)
    for iteration in range(args.start_iter, cfg["max_iter"]):
        t0 = time.time()
        if iteration in cfg["lr_steps"]:
            step_index += 1
            adjust_learning_rate(optimizer, 0.1, step_index, args.lr)
        images, targets = next(batch_iterator)
        loc, conf = net(images)
        loss_l, loss_c = criterion(loc, conf, priors, targets)
        optimizer.zero_grad()
        (loss_l + loss_c).backward()
        optimizer.step()
        if iteration % 10 == 0:
            log.info("iter %d || loss %.4f || %.3f s", iteration, (loss_l + loss_c).item(), time.time() - t0)


if __name__ == "__main__":
    train()
