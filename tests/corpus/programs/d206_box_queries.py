import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64
CLASSES = 4


class ShelfImages(Dataset):
    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            count = int(torch.poisson(torch.tensor(6.0), generator=g).clamp(1, 18))
            wh = torch.rand(count, 2, generator=g) * 8 + 5
            xy = torch.rand(count, 2, generator=g) * (SIZE - 14) + 7
            labels = torch.randint(0, CLASSES, (count,), generator=g)
            img = torch.rand(3, SIZE, SIZE, generator=g) * 0.2
            for (cx, cy), (w, h), c in zip(xy.tolist(), wh.tolist(), labels.tolist()):
                ch, tone = (c, 0.8) if c < 3 else (0, 0.4)
                img[ch, int(cy - h / 2):int(cy + h / 2), int(cx - w / 2):int(cx + w / 2)] += tone
            self.items.append((img, torch.cat([xy, wh], 1) / SIZE, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    imgs, boxes, labels = zip(*batch)
    return torch.stack(imgs), boxes, labels


class QueryDetector(nn.Module):
    def __init__(self, num_queries, dim=64):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(32, dim, 3, 2, 1), nn.ReLU())
        self.pos = nn.Parameter(torch.randn(1, (SIZE // 8) ** 2, dim) * 0.02)
        self.query = nn.Parameter(torch.randn(1, num_queries, dim) * 0.5)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(dim, 4, 128, dropout=0.0, batch_first=True), 2)
        self.cls, self.box = nn.Linear(dim, CLASSES), nn.Linear(dim, 4)

    def forward(self, x):
        memory = self.stem(x).flatten(2).transpose(1, 2) + self.pos
        q = self.decoder(self.query.expand(x.shape[0], -1, -1), memory)
        return self.cls(q), self.box(q).sigmoid()


def pairwise_iou(a, b):
    a0, a1 = a[:, None, :2] - a[:, None, 2:] / 2, a[:, None, :2] + a[:, None, 2:] / 2
    b0, b1 = b[None, :, :2] - b[None, :, 2:] / 2, b[None, :, :2] + b[None, :, 2:] / 2
    inter = (torch.min(a1, b1) - torch.max(a0, b0)).clamp(min=0).prod(-1)
    return inter / (a[:, None, 2:].prod(-1) + b[None, :, 2:].prod(-1) - inter + 1e-6)


class DynamicKMatcher:
    def __init__(self, ota_k=3):
        self.ota_k = ota_k

    @torch.no_grad()
    def __call__(self, logits, boxes, gt_boxes, gt_labels):
        iou = pairwise_iou(boxes, gt_boxes)
        cost = 5 * torch.cdist(boxes, gt_boxes, p=1) - 2 * iou - 2 * logits.sigmoid()[:, gt_labels]
        matching = torch.zeros_like(cost)
        k = iou.topk(min(self.ota_k, iou.shape[0]), dim=0).values.sum(0).int().clamp(min=1)
        for gt in range(gt_boxes.shape[0]):
            matching[cost[:, gt].topk(int(k[gt]), largest=False).indices, gt] = 1.0
        self.keep_cheapest(matching, cost)
        while (matching.sum(0) == 0).any():
            cost[matching.sum(1) > 0] += 100000.0
            for gt in torch.nonzero(matching.sum(0) == 0).squeeze(1):
                matching[cost[:, gt].argmin(), gt] = 1.0
            self.keep_cheapest(matching, cost)
        return torch.nonzero(matching, as_tuple=True)

    @staticmethod
    def keep_cheapest(matching, cost):
        shared = matching.sum(1) > 1
        if shared.any():
            best = cost[shared].masked_fill(matching[shared] == 0, float("inf")).argmin(1)
            matching[shared] = 0.0
            matching[shared.nonzero().squeeze(1), best] = 1.0


def detection_loss(outputs, gt_boxes, gt_labels, matcher):
    logits, boxes = outputs
    target = torch.zeros_like(logits)
    l1, n = 0.0, 0
    for i in range(logits.shape[0]):
        q, g = matcher(logits[i], boxes[i], gt_boxes[i], gt_labels[i])
        target[i, q, gt_labels[i][g]] = 1.0
        l1 = l1 + (boxes[i, q] - gt_boxes[i][g]).abs().sum()
        n += len(q)
    cls = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
    return (cls + 5 * l1) / n


def main():
    torch.manual_seed(11)
    loader = DataLoader(ShelfImages(160, seed=29), batch_size=4, shuffle=True, collate_fn=collate)
    model = QueryDetector(num_queries=12)
    matcher = DynamicKMatcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4)
    for epoch in range(2):
        t0, running = time.time(), 0.0
        for it, (imgs, boxes, labels) in enumerate(loader):
            loss = detection_loss(model(imgs), boxes, labels, matcher)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            if it % 2 == 0:
                print(f"epoch {epoch} iter {it}/{len(loader)} loss {running / (it + 1):.4f} {time.time() - t0:.1f}s", flush=True)
        print(f"epoch {epoch} finished, mean loss {running / len(loader):.4f}", flush=True)
    print("training complete", flush=True)


if __name__ == "__main__":
    main()
