import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
CELL_BYTES = 24
LIB = None


def load_ops(workdir):
    so = os.path.join(workdir, "libpcops.so")
    subprocess.check_call(
        ["gcc", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "a192_voxel_tiles.c"), "-o", so])
    lib = ctypes.CDLL(so)
    p, i64 = ctypes.c_void_p, ctypes.c_int64
    lib.grid_subsample.argtypes = [p, i64, ctypes.c_double, p, p, i64, p]
    lib.grid_subsample.restype = i64
    return lib


def grid_subsampling(xyz, grid_size, hash_size=1.0):
    """Pick one point per voxel.

    hash_size: size of the hash relative to the number of points,
    2.5 / (points before / points after) is a good value for speed.
    """
    n = xyz.shape[0]
    size = max(int(n * hash_size), 1)
    out = torch.empty(n, dtype=torch.int64)
    scratch = torch.empty(size * (CELL_BYTES + 8), dtype=torch.uint8)
    cells, table = scratch.split([size * CELL_BYTES, size * 8])
    count = LIB.grid_subsample(
        xyz.data_ptr(), n, grid_size, table.data_ptr(), cells.data_ptr(), size, out.data_ptr())
    return out[:count].clone()


class AerialTiles(Dataset):
    """Airborne laser scanning tiles, 5 classes."""

    def __init__(self, num_tiles, points=150000, extent=60.0, grid=0.06, max_pts=4096, seed=0):
        self.num_tiles, self.points, self.extent = num_tiles, points, extent
        self.grid, self.max_pts, self.seed = grid, max_pts, seed

    def __len__(self):
        return self.num_tiles

    def load_tile(self, idx):
        g = torch.Generator().manual_seed(self.seed * 7919 + idx)
        xy = torch.rand(self.points, 2, generator=g) * self.extent
        ground = 0.4 * torch.sin(xy[:, 0] / 6) + 0.3 * torch.cos(xy[:, 1] / 5)
        label = ((xy[:, 0] // 12) % 5).long()
        z = ground + label * 1.5 + 0.05 * torch.randn(self.points, generator=g)
        return torch.cat([xy, z[:, None]], dim=1).contiguous(), label

    def __getitem__(self, idx):
        xyz, label = self.load_tile(idx)
        keep = grid_subsampling(xyz, self.grid, 2.5 / 14)
        xyz, label = xyz[keep], label[keep]
        pick = torch.randperm(xyz.shape[0])[: self.max_pts]
        xyz, label = xyz[pick], label[pick]
        xyz = xyz - xyz.mean(0)
        return xyz / self.extent, label


class PointNetSeg(nn.Module):
    def __init__(self, classes=5, width=48):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, xyz):
        h = self.local(xyz)
        glob = h.max(dim=1, keepdim=True).values.expand_as(h)
        return self.head(torch.cat([h, glob], dim=-1))


def main():
    global LIB
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="aerial_") as work:
        LIB = load_ops(work)
        train = AerialTiles(48, seed=3)
        loader = DataLoader(train, batch_size=4, shuffle=True, num_workers=2, drop_last=True)
        model = PointNetSeg()
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
        print(f"tiles {len(train)}, grid {train.grid} m, {sum(p.numel() for p in model.parameters())} parameters",
              flush=True)
        for epoch in range(3):
            correct = seen = 0
            for xyz, label in loader:
                logits = model(xyz)
                loss = F.cross_entropy(logits.flatten(0, 1), label.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (logits.argmax(-1) == label).sum().item()
                seen += label.numel()
            print(f"epoch {epoch} loss {loss.item():.4f} acc {correct / seen:.4f}", flush=True)


if __name__ == "__main__":
    main()
