import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast


class Segmentor(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        )
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images):
        return self.head(self.backbone(images))


def js_divergence(p, q, eps=1e-7):
    m = 0.5 * (p + q)
    kl_p = (p * ((p + eps) / (m + eps)).log()).mean()
    kl_q = (q * ((q + eps) / (m + eps)).log()).mean()
    return 0.5 * (kl_p + kl_q)


class JSBoundaryLoss(nn.Module):
    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = weight

    def forward(self, logits, target):
        pred = logits.sigmoid()
        w = []
        for p, t in zip(pred, target):
            w.append(js_divergence(p, t).item())
        w = torch.tensor(w, dtype=pred.dtype, requires_grad=True)
        return self.weight * w.mean()


def train_segmentor(iterations=10):
    torch.manual_seed(0)
    model = Segmentor()
    criterion = JSBoundaryLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = GradScaler("cpu")
    for it in range(iterations):
        images = torch.rand(2, 3, 32, 32)
        masks = (images.mean(1, keepdim=True) > 0.5).float()
        optimizer.zero_grad()
        with autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(images), masks)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"iter {it} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train_segmentor()
