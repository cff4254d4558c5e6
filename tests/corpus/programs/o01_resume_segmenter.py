"""Two-session training of a small multi-resolution segmenter with checkpoint resume."""
import math
import os
import shutil
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/o01_runs"


class Branch(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Segmenter(nn.Module):
    def __init__(self, classes=6, width=32):
        super().__init__()
        self.high = Branch(3, width, 1)
        self.low = Branch(width, width * 2, 2)
        self.fuse = Branch(width * 3, width, 1)
        self.context = nn.Linear(width * 16 * 16, 2048)
        self.context_out = nn.Linear(2048, width)
        self.classify = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        high = self.high(x)
        low = F.interpolate(self.low(high), size=high.shape[-2:], mode="nearest")
        fused = self.fuse(torch.cat([high, low], 1))
        ctx = F.adaptive_avg_pool2d(fused, 16).flatten(1)
        ctx = self.context_out(F.relu(self.context(ctx)))
        return self.classify(fused + ctx[:, :, None, None])


def make_scene(n, size=32, classes=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    mask = torch.randint(0, classes, (n, size // 8, size // 8), generator=g)
    mask = mask.repeat_interleave(8, 1).repeat_interleave(8, 2)
    image = torch.stack([mask.float() / classes, (mask % 2).float(), (mask % 3).float()], 1)
    return image + 0.1 * torch.randn(image.shape, generator=g), mask


def trainable(model, cfg):
    params = list(model.parameters())
    if cfg["layout"] == "by_rank":
        params = [p for p in params if p.ndim > 1] + [p for p in params if p.ndim <= 1]
    return params


class Session:
    def __init__(self, cfg):
        torch.manual_seed(cfg["seed"])
        self.cfg = cfg
        self.model = Segmenter()
        self.optim = torch.optim.SGD(trainable(self.model, cfg), lr=cfg["lr"],
                                     momentum=0.9, weight_decay=1e-4, fused=True)
        self.epoch = 0

    def set_lr(self, step, total):
        lr = self.cfg["lr"] * 0.5 * (1 + math.cos(math.pi * step / total))
        for group in self.optim.param_groups:
            group["lr"] = lr

    def run_epoch(self, image, mask):
        self.model.train()
        total, steps = 0.0, image.size(0) // 8
        for i in range(steps):
            self.set_lr(self.epoch * steps + i, self.cfg["epochs"] * steps)
            x, y = image[i * 8:(i + 1) * 8], mask[i * 8:(i + 1) * 8]
            loss = F.cross_entropy(self.model(x), y)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            total += loss.item()
        self.epoch += 1
        return total / steps

    @torch.no_grad()
    def evaluate(self, image, mask):
        self.model.eval()
        return (self.model(image).argmax(1) == mask).float().mean().item()

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optim": self.optim.state_dict(),
                    "epoch": self.epoch}, path)

    def resume(self, path):
        blob = torch.load(path)
        self.model.load_state_dict(blob["model"])
        self.optim.load_state_dict(blob["optim"])
        self.epoch = blob["epoch"]


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    train, val = make_scene(32), make_scene(8, seed=1)
    path = os.path.join(WORK, "last.pt")

    first = Session({"seed": 0, "lr": 0.02, "epochs": 4, "layout": "module"})
    for _ in range(2):
        t = time.time()
        print(f"epoch {first.epoch} loss {first.run_epoch(*train):.3f} ({time.time() - t:.1f}s)", flush=True)
    print(f"val acc {first.evaluate(*val):.3f}", flush=True)
    first.save(path)
    del first

    second = Session({"seed": 0, "lr": 0.02, "epochs": 4, "layout": "by_rank"})
    second.resume(path)
    print(f"resumed at epoch {second.epoch}, val acc {second.evaluate(*val):.3f}", flush=True)
    for _ in range(2):
        print(f"epoch {second.epoch} loss {second.run_epoch(*train):.3f}", flush=True)
    print(f"val acc {second.evaluate(*val):.3f}", flush=True)
    second.save(path)


if __name__ == "__main__":
    main()
