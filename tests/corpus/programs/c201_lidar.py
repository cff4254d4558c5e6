import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("lidar")

CLASSES = ["car", "van", "cyclist", "pedestrian"]
SIZES = np.array([[4.2, 1.8, 1.6], [5.2, 2.1, 2.2], [1.8, 0.7, 1.7], [0.8, 0.8, 1.8]], dtype=np.float32)


def load_extension():
    source = Path(__file__).with_name("c201_lidar.cpp")
    target = Path(tempfile.mkdtemp(prefix="lidar_ext_")) / "libradius.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.radius_graph.restype = ctypes.c_int64
    lib.radius_graph.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_float, ctypes.c_int64,
                                 ctypes.c_void_p, ctypes.c_void_p]
    return lib


EXT = load_extension()


def radius_graph(pos, r, max_neighbors=8):
    pos = pos.contiguous()
    n, dim = pos.shape
    row = torch.empty(n * max_neighbors, dtype=torch.long)
    col = torch.empty(n * max_neighbors, dtype=torch.long)
    edges = EXT.radius_graph(pos.data_ptr(), n, dim, r, max_neighbors, row.data_ptr(), col.data_ptr())
    return torch.stack([row[:edges], col[:edges]])


class ObjectCrops(Dataset):
    """Points of a sweep that fall into an annotated box, with the class of the box."""

    def __init__(self, sweeps=60, boxes_per_sweep=6, seed=11):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(sweeps):
            for _ in range(boxes_per_sweep):
                label = int(rng.integers(len(CLASSES)))
                distance = float(rng.uniform(4.0, 75.0))
                size = SIZES[label] * rng.uniform(0.9, 1.1, size=3).astype(np.float32)
                hits = int(rng.poisson(90000.0 * size[1] * size[2] / distance ** 2 / 4))
                surface = rng.uniform(-0.5, 0.5, size=(min(hits, 48), 3)).astype(np.float32) * size
                returns = rng.uniform(size=len(surface)) > 0.15
                self.items.append((surface[returns], label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        points, label = self.items[i]
        return torch.from_numpy(points), label


def collate(batch):
    return [p for p, _ in batch], torch.tensor([y for _, y in batch])


class EdgeBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(c_in + 3, c_out), nn.ReLU(), nn.Linear(c_out, c_out))

    def forward(self, x, pos, edge_index):
        src, dst = edge_index
        msg = self.mlp(torch.cat([x[src], pos[src] - pos[dst]], dim=1))
        total = torch.zeros(pos.shape[0], msg.shape[1]).index_add(0, dst, msg)
        degree = torch.zeros(pos.shape[0]).index_add(0, dst, torch.ones(dst.shape[0]))
        return F.relu(total / degree.clamp(min=1).unsqueeze(1))


class CropNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = EdgeBlock(3, 32)
        self.block2 = EdgeBlock(32, 64)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(CLASSES)))

    def forward(self, clouds):
        feats = []
        for pos in clouds:
            edge_index = radius_graph(pos, r=0.6)
            x = self.block2(self.block1(pos, pos, edge_index), pos, edge_index)
            feats.append(x.mean(dim=0))
        return self.head(torch.stack(feats))


def main():
    torch.manual_seed(3)
    data = ObjectCrops()
    loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
    model = CropNet()
    optim = torch.optim.AdamW(model.parameters(), lr=2e-3)
    log.info("%d crops, %d batches", len(data), len(loader))
    for epoch in range(2):
        for step, (clouds, labels) in enumerate(loader):
            loss = F.cross_entropy(model(clouds), labels)
            optim.zero_grad()
            loss.backward()
            optim.step()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    log.info("done")


if __name__ == "__main__":
    main()
