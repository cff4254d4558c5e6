"""Joint drivable-area segmentation and object detection, data parallel on CPU.

    torchrun --standalone --nproc-per-node 2 u171_lanes.py
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class RoadScenes(Dataset):
    """Small synthetic stand-in for BDD100K: picture, lane mask, boxes per cell."""

    def __init__(self, n=64, size=32):
        g = torch.Generator().manual_seed(7)
        self.pictures = torch.rand(n, 3, size, size, generator=g)
        self.lanes = (torch.rand(n, size, size, generator=g) > 0.7).float()
        self.boxes = torch.rand(n, 4, 8, 8, generator=g)
        self.visible = (torch.rand(n, 8, 8, generator=g) > 0.8).float()
        # night sequence
        self.visible[49:53] = 0.0

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return self.pictures[i], self.lanes[i], self.boxes[i], self.visible[i]


class HybridNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        )
        self.seg_head = nn.Conv2d(width, 1, 1)
        self.det_head = nn.Conv2d(width, 4, 4, stride=4)

    def forward(self, x):
        f = self.stem(x)
        return self.seg_head(f).squeeze(1), self.det_head(f)


def tversky(logits, target, alpha=0.7, beta=0.3):
    p = logits.sigmoid()
    tp = (p * target).sum()
    fp = (p * (1 - target)).sum()
    fn = ((1 - p) * target).sum()
    return 1 - tp / (tp + alpha * fp + beta * fn)


class ModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pictures, lanes, boxes, visible):
        seg, det = self.model(pictures)
        seg_loss = tversky(seg, lanes)
        per_cell = F.smooth_l1_loss(det, boxes, reduction="none").mean(1)
        reg_loss = (per_cell * visible).sum() / visible.sum()
        return seg_loss, reg_loss


def save_checkpoint(net, opt, epoch, folder):
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save({"model": net.module.state_dict(), "opt": opt.state_dict(), "epoch": epoch},
                   os.path.join(folder, f"hybridnet_{epoch:02d}.pth"))
    dist.barrier()


def train_one_epoch(net, loader, opt, epoch):
    net.train()
    seen = 0
    for step, batch in enumerate(loader):
        opt.zero_grad()
        seg_loss, reg_loss = net(*batch)
        loss = seg_loss + reg_loss
        if not torch.isfinite(loss):
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        seen += len(batch[0])
        print(f"[rank {dist.get_rank()}] epoch {epoch} step {step} "
              f"seg {seg_loss.item():.4f} reg {reg_loss.item():.4f}", flush=True)
    return seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--saved-path", default="checkpoints")
    opt_args = ap.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    data = RoadScenes()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=opt_args.batch_size, sampler=sampler)
    net = DDP(ModelWithLoss(HybridNet()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=opt_args.lr)

    for epoch in range(opt_args.epochs):
        t0 = time.time()
        seen = train_one_epoch(net, loader, optimizer, epoch)
        save_checkpoint(net, optimizer, epoch, opt_args.saved_path)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} done: {seen} pictures, {time.time() - t0:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
