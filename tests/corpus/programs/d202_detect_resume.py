import os
import shutil
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GRID = 8
SIZE = 64
CLASSES = 3


class ShapesDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.rand(n, 3, SIZE, SIZE, generator=g) * 0.2
        self.targets = torch.zeros(n, 5 + CLASSES, GRID, GRID)
        for i in range(n):
            for _ in range(int(torch.randint(1, 4, (1,), generator=g))):
                cx, cy = (torch.rand(2, generator=g) * (SIZE - 20) + 10).tolist()
                w, h = (torch.rand(2, generator=g) * 8 + 6).tolist()
                c = int(torch.randint(0, CLASSES, (1,), generator=g))
                x0, x1, y0, y1 = int(cx - w / 2), int(cx + w / 2), int(cy - h / 2), int(cy + h / 2)
                self.images[i, c, y0:y1, x0:x1] += 0.7
                cell = SIZE / GRID
                gx, gy = int(cx // cell), int(cy // cell)
                self.targets[i, :5, gy, gx] = torch.tensor([cx / cell - gx, cy / cell - gy, w / SIZE, h / SIZE, 1.0])
                self.targets[i, 5 + c, gy, gx] = 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.targets[i]


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1))


class TinyDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 64, 2), conv(64, 64, 1))
        self.head = nn.Conv2d(64, 5 + CLASSES, 1)

    def forward(self, x):
        return self.head(self.backbone(x))


def compute_loss(pred, target):
    obj = target[:, 4]
    lobj = nn.functional.binary_cross_entropy_with_logits(pred[:, 4], obj, pos_weight=torch.tensor(8.0))
    mask = obj > 0.5
    p = pred.permute(0, 2, 3, 1)[mask]
    t = target.permute(0, 2, 3, 1)[mask]
    lbox = nn.functional.smooth_l1_loss(p[:, :4].sigmoid(), t[:, :4])
    lcls = nn.functional.binary_cross_entropy_with_logits(p[:, 5:], t[:, 5:])
    return lbox * 5 + lobj + lcls, (lbox, lobj, lcls)


def build_optimizer(model, opt):
    params = [p for p in model.parameters() if p.requires_grad]
    if opt["adam"]:
        return torch.optim.Adam(params, lr=opt["lr"], weight_decay=opt["decay"])
    return torch.optim.SGD(params, lr=opt["lr"], momentum=0.9, weight_decay=opt["decay"])


def train(opt, weights_dir):
    latest = os.path.join(weights_dir, "latest.pt")
    best = os.path.join(weights_dir, "best.pt")
    loader = DataLoader(ShapesDataset(opt["images"], opt["seed"]), batch_size=16, shuffle=True)
    model = TinyDetector()
    optimizer = build_optimizer(model, opt)
    start_epoch, best_loss = 0, float("inf")
    if opt["resume"]:
        checkpoint = torch.load(latest, map_location="cpu")
        model.load_state_dict(checkpoint["model"])
        start_epoch = checkpoint["epoch"] + 1
        if checkpoint["optimizer"] is not None:
            optimizer.load_state_dict(checkpoint["optimizer"])
            best_loss = checkpoint["best_loss"]
        print(f"resumed {os.path.basename(latest)} at epoch {start_epoch}", flush=True)

    for epoch in range(start_epoch, opt["epochs"]):
        model.train()
        t0, mloss = time.time(), torch.zeros(4)
        for i, (imgs, targets) in enumerate(loader):
            loss, parts = compute_loss(model(imgs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mloss = (mloss * i + torch.stack([*parts, loss]).detach()) / (i + 1)
        print("epoch %3d/%d  box %.3f  obj %.3f  cls %.3f  total %.3f  %.1fs"
              % (epoch, opt["epochs"] - 1, *mloss.tolist(), time.time() - t0), flush=True)
        best_loss = min(best_loss, mloss[3].item())
        checkpoint = {"epoch": epoch, "best_loss": best_loss, "model": model.state_dict(),
                      "optimizer": optimizer.state_dict()}
        torch.save(checkpoint, latest)
        if best_loss == mloss[3].item():
            torch.save(checkpoint, best)


def main():
    torch.manual_seed(0)
    weights_dir = tempfile.mkdtemp(prefix="weights_")
    try:
        print("== stage 1: base data", flush=True)
        train(dict(images=320, seed=1, epochs=4, lr=0.01, decay=5e-4, adam=False, resume=False), weights_dir)
        print("== stage 2: new site data", flush=True)
        train(dict(images=160, seed=2, epochs=8, lr=1e-4, decay=5e-4, adam=True, resume=True), weights_dir)
        print("done", flush=True)
    finally:
        shutil.rmtree(weights_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
