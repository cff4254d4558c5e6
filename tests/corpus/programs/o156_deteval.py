"""Train a small detector and evaluate it over the validation set with COCO style matching."""
import argparse
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Images with one or two bright rectangles, boxes in normalised cxcywh."""

    def __init__(self, count, size=48, seed=0):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        image = torch.rand(3, self.size, self.size, generator=g) * 0.3
        boxes, labels = [], []
        for _ in range(1 + i % 2):
            w, h = torch.randint(8, 20, (2,), generator=g).tolist()
            x = torch.randint(0, self.size - w, (1,), generator=g).item()
            y = torch.randint(0, self.size - h, (1,), generator=g).item()
            c = torch.randint(0, 3, (1,), generator=g).item()
            image[c, y:y + h, x:x + w] += 0.7
            boxes.append([(x + w / 2) / self.size, (y + h / 2) / self.size, w / self.size, h / self.size])
            labels.append(c)
        target = {"boxes": torch.tensor(boxes), "labels": torch.tensor(labels),
                  "image_id": torch.tensor([i]), "orig_size": torch.tensor([self.size, self.size])}
        return image, target


def collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)


class Queries(nn.Module):
    def __init__(self, queries=4, classes=3, dim=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, dim, 3, 2), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(dim * 25, 64), nn.ReLU())
        self.queries = queries
        self.box, self.cls = nn.Linear(64, queries * 4), nn.Linear(64, queries * (classes + 1))

    def forward(self, x):
        f = self.body(x)
        return self.box(f).sigmoid().view(len(x), self.queries, 4), self.cls(f).view(len(x), self.queries, -1)


def set_loss(boxes, logits, targets):
    loss = boxes.new_zeros(())
    for b, l, t in zip(boxes, logits, targets):
        cost = torch.cdist(b, t["boxes"], p=1)
        pick = cost.argmin(0)
        want = torch.full((len(b),), logits.shape[-1] - 1)
        want[pick] = t["labels"]
        loss = loss + F.l1_loss(b[pick], t["boxes"]) * 5 + F.cross_entropy(l, want)
    return loss / len(boxes)


class Evaluator:
    def __init__(self):
        self.predictions, self.groundtruth = {}, {}

    def update(self, boxes, logits, targets):
        for b, l, t in zip(boxes, logits.softmax(-1), targets):
            score, label = l[:, :-1].max(-1)
            key = int(t["image_id"])
            self.predictions[key] = {"boxes": b, "scores": score, "labels": label}
            self.groundtruth[key] = t

    def summarize(self, thr=0.3):
        hits = total = 0
        for key, t in self.groundtruth.items():
            p = self.predictions[key]
            dist = torch.cdist(t["boxes"], p["boxes"], p=1).min(1)
            hits += int(((dist.values < thr) & (p["labels"][dist.indices] == t["labels"])).sum())
            total += len(t["labels"])
        return hits / total


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    evaluator = Evaluator()
    for images, targets in loader:
        evaluator.update(*model(images), targets)
    return evaluator.summarize()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--val", type=int, default=480)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Shapes(256), 16, shuffle=True, collate_fn=collate, num_workers=args.workers)
    val = DataLoader(Shapes(args.val, seed=9000), 16, collate_fn=collate, num_workers=args.workers)
    model = Queries()
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(args.epochs):
        model.train()
        for images, targets in train:
            loss = set_loss(*model(images), targets)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch} recall {evaluate(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
