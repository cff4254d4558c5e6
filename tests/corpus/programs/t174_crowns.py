"""Two-stage tree-crown detector head on frozen features, CPU RoIAlign."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
IMG, STRIDE, POOL = 256, 8, 5


def build_ops():
    so = os.path.join(tempfile.mkdtemp(prefix="ops_"), "roi_pool.so")
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", os.path.join(HERE, "roi_pool.c"), "-o", so], check=True)
    lib = ctypes.CDLL(so)
    lib.roi_align_forward.restype = None
    lib.roi_align_forward.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                                      ctypes.c_int64, ctypes.c_float, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    return lib


class RoIAlign:
    def __init__(self, lib, pooled, scale, sampling=2):
        self.lib, self.pooled, self.scale, self.sampling = lib, pooled, scale, sampling

    def __call__(self, feat, rois):
        feat, rois = feat.contiguous(), rois.detach().float().contiguous()
        _, c, h, w = feat.shape
        out = torch.empty(len(rois), c, self.pooled, self.pooled)
        self.lib.roi_align_forward(feat.data_ptr(), c, h, w, rois.data_ptr(), len(rois), self.scale,
                                   self.pooled, self.sampling, out.data_ptr())
        return out


def write_annotations(path, n_tiles, seed=5):
    rng = np.random.default_rng(seed)
    with open(path, "w") as fh:
        fh.write("tile,xmin,ymin,xmax,ymax\n")
        for t in range(n_tiles):
            for _ in range(6):
                x, y = rng.integers(4, IMG - 70, size=2)
                w, h = rng.integers(18, 60, size=2)
                fh.write(f"{t},{x},{y},{x + w},{y + h}\n")
            if t == 101:
                fh.write(f"{t},143,88,143,88\n")


def load_annotations(path):
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return {int(t): torch.from_numpy(rows[rows[:, 0] == t, 1:]) for t in np.unique(rows[:, 0])}


def render(boxes, gen):
    img = torch.rand(3, IMG, IMG, generator=gen) * 0.3
    for x0, y0, x1, y1 in boxes.int().tolist():
        img[1, y0:y1, x0:x1] += 0.6
    return img


def to_cxcywh(b):
    return torch.stack([(b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]], 1)


def encode(gt, ref):
    g, r = to_cxcywh(gt), to_cxcywh(ref)
    return torch.cat([(g[:, :2] - r[:, :2]) / r[:, 2:], torch.log(g[:, 2:] / r[:, 2:])], 1)


def decode(delta, ref):
    r = to_cxcywh(ref)
    ctr = r[:, :2] + delta[:, :2] * r[:, 2:]
    size = r[:, 2:] * delta[:, 2:].clamp(max=4.0).exp()
    return torch.cat([ctr - size / 2, ctr + size / 2], 1).clamp(0, IMG)


class CascadeHead(nn.Module):
    def __init__(self, channels, pooler):
        super().__init__()
        self.pooler = pooler
        self.stages = nn.ModuleList(nn.Sequential(nn.Flatten(), nn.Linear(channels * POOL * POOL, 64), nn.ReLU(),
                                                  nn.Linear(64, 4)) for _ in range(2))

    def forward(self, feat, batch_idx, proposals, gt):
        loss, boxes = 0.0, proposals
        for stage in self.stages:
            pooled = self.pooler(feat, torch.cat([batch_idx[:, None], boxes], 1))
            delta = stage(pooled)
            loss = loss + F.smooth_l1_loss(delta, encode(gt, boxes), beta=0.1)
            boxes = decode(delta.detach(), boxes)
        return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=160)
    ap.add_argument("--batch", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    csv = os.path.join(tempfile.mkdtemp(prefix="crowns_"), "train.csv")
    write_annotations(csv, args.tiles)
    targets, gen = load_annotations(csv), torch.Generator().manual_seed(1)
    backbone = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4, padding=2), nn.ReLU(),
                             nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU()).requires_grad_(False)
    head = CascadeHead(24, RoIAlign(build_ops(), POOL, 1.0 / STRIDE))
    opt = torch.optim.Adam(head.parameters(), lr=1e-3)
    for step, first in enumerate(range(0, args.tiles, args.batch)):
        tiles = range(first, first + args.batch)
        feat = backbone(torch.stack([render(targets[t], gen) for t in tiles]))
        gt = torch.cat([targets[t] for t in tiles])
        batch_idx = torch.cat([torch.full((len(targets[t]),), float(i)) for i, t in enumerate(tiles)])
        size = (gt[:, 2:] - gt[:, :2]).repeat(1, 2)
        proposals = gt + (torch.rand(gt.shape, generator=gen) - 0.5) * 0.3 * size
        loss = head(feat, batch_idx, proposals, gt)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 8 == 0:
            print(f"step {step} box loss {loss.item():.4f}", flush=True)
    print("finished, final loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
