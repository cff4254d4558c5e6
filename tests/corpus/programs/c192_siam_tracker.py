import logging
import os
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="[%(asctime)s %(name)s] %(message)s", level=logging.INFO)
logger = logging.getLogger("global")

cfg = SimpleNamespace(
    BACKBONE=SimpleNamespace(TRAIN_EPOCH=3, TRAIN_LAYERS=["layer2", "layer3"], LAYERS_LR=0.1),
    TRAIN=SimpleNamespace(EPOCH=5, START_EPOCH=0, BATCH_SIZE=32, BASE_LR=0.01, MOMENTUM=0.9,
                          WEIGHT_DECAY=1e-4, CLS_WEIGHT=1.0, LOC_WEIGHT=1.2, RESUME="", SNAPSHOT_DIR=""),
)


class TrkDataset(Dataset):
    def __init__(self, length=192, seed=7):
        self.length, self.seed = length, seed

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 100003 + i)
        search = 0.3 * rng.standard_normal((3, 48, 48)).astype(np.float32)
        patch = rng.standard_normal((3, 8, 8)).astype(np.float32) + 2.0
        r, c = rng.integers(8, 32, 2)
        search[:, r:r + 8, c:c + 8] = patch
        template = np.zeros((3, 24, 24), dtype=np.float32)
        template[:, 8:16, 8:16] = patch
        loc = np.array([r, c], dtype=np.float32) / 48
        return torch.from_numpy(template), torch.from_numpy(search), torch.from_numpy(loc), int(r >= 20)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self._stage(3, 16)
        self.layer2 = self._stage(16, 32)
        self.layer3 = self._stage(32, 32)

    @staticmethod
    def _stage(cin, cout):
        return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout),
                             nn.ReLU(inplace=True), nn.AvgPool2d(2))

    def forward(self, x):
        return self.layer3(self.layer2(self.layer1(x)))


class ModelBuilder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.neck = nn.Conv2d(32, 32, 1)
        self.rpn_head = nn.ModuleDict({"cls": nn.Linear(32 * 16, 2), "loc": nn.Linear(32 * 16, 2)})

    def forward(self, template, search, loc, cls):
        zf, xf = self.neck(self.backbone(template)), self.neck(self.backbone(search))
        b, ch = xf.shape[:2]
        corr = F.conv2d(xf.reshape(1, b * ch, *xf.shape[2:]), zf.reshape(b * ch, 1, *zf.shape[2:]), groups=b * ch)
        corr = corr.view(b, ch * 16) / 9
        cls_loss = F.cross_entropy(self.rpn_head["cls"](corr), cls)
        loc_loss = F.smooth_l1_loss(self.rpn_head["loc"](corr), loc)
        return cfg.TRAIN.CLS_WEIGHT * cls_loss + cfg.TRAIN.LOC_WEIGHT * loc_loss


def build_opt_lr(model, current_epoch=0):
    for param in model.backbone.parameters():
        param.requires_grad = False
    if current_epoch >= cfg.BACKBONE.TRAIN_EPOCH:
        for layer in cfg.BACKBONE.TRAIN_LAYERS:
            for param in getattr(model.backbone, layer).parameters():
                param.requires_grad = True
    groups = [
        {"params": filter(lambda p: p.requires_grad, model.backbone.parameters()),
         "lr": cfg.BACKBONE.LAYERS_LR * cfg.TRAIN.BASE_LR},
        {"params": model.neck.parameters(), "lr": cfg.TRAIN.BASE_LR},
        {"params": model.rpn_head.parameters(), "lr": cfg.TRAIN.BASE_LR},
    ]
    optimizer = torch.optim.SGD(groups, momentum=cfg.TRAIN.MOMENTUM, weight_decay=cfg.TRAIN.WEIGHT_DECAY)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.9 ** e)
    return optimizer, scheduler


def restore_from(model, optimizer, ckpt_path):
    ckpt = torch.load(ckpt_path, map_location="cpu")
    model.load_state_dict(ckpt["state_dict"], strict=True)
    optimizer.load_state_dict(ckpt["optimizer"])
    return model, optimizer, ckpt["epoch"]


def run():
    torch.manual_seed(123)
    loader = DataLoader(TrkDataset(), batch_size=cfg.TRAIN.BATCH_SIZE, shuffle=True)
    model = ModelBuilder()
    start_epoch = cfg.TRAIN.START_EPOCH
    optimizer, scheduler = build_opt_lr(model, start_epoch)
    if cfg.TRAIN.RESUME:
        logger.info("resume from %s", os.path.basename(cfg.TRAIN.RESUME))
        model, optimizer, start_epoch = restore_from(model, optimizer, cfg.TRAIN.RESUME)
    path = cfg.TRAIN.RESUME
    for epoch in range(start_epoch, cfg.TRAIN.EPOCH):
        if epoch == cfg.BACKBONE.TRAIN_EPOCH:
            logger.info("start training backbone")
            optimizer, scheduler = build_opt_lr(model, epoch)
        total = 0.0
        for template, search, loc, cls in loader:
            loss = model(template, search, loc, cls)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            total += loss.item()
        scheduler.step()
        path = os.path.join(cfg.TRAIN.SNAPSHOT_DIR, "checkpoint_e%d.pth" % (epoch + 1))
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        logger.info("epoch %d loss %.4f lr %.5f", epoch + 1, total / len(loader), optimizer.param_groups[-1]["lr"])
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as snapshots:
        cfg.TRAIN.SNAPSHOT_DIR = snapshots
        last = run()
        cfg.TRAIN.RESUME, cfg.TRAIN.EPOCH = last, 8
        logger.info("extending the schedule to %d epochs", cfg.TRAIN.EPOCH)
        run()
