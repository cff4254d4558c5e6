import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).resolve().parent
TYPES = {"Car": (1.6, 3.9), "Pedestrian": (0.6, 0.8), "Cyclist": (0.6, 1.8)}
POINTS = 64


def compile_evaluator():
    lib_path = Path(tempfile.mkdtemp(prefix="kitti_eval_")) / "libevaluate_object_3d.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-DNDEBUG", "-shared", "-fPIC", str(ROOT / "c206_boxeval.cpp"),
                    "-o", str(lib_path)], check=True)
    lib = ctypes.CDLL(str(lib_path))
    lib.eval_bev.restype = ctypes.c_double
    lib.eval_bev.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
    return lib


def make_split(count, seed):
    """Points of a frustum seen from above, the one-hot type, and the box (x, z, w, l, yaw)."""
    rng = np.random.default_rng(seed)
    clouds, onehot, boxes = [], [], []
    for _ in range(count):
        kind = int(rng.integers(3))
        w, l = np.array(list(TYPES.values())[kind]) * rng.uniform(0.85, 1.15, 2)
        yaw = rng.uniform(-np.pi / 2, np.pi / 2)
        center = rng.normal(0, 0.4, 2)
        local = rng.uniform(-0.5, 0.5, (POINTS, 2)) * (l, w)
        c, s = np.cos(yaw), np.sin(yaw)
        pts = local @ np.array([[c, s], [-s, c]]) + center
        pts[: POINTS // 4] = rng.uniform(-3, 3, (POINTS // 4, 2))
        clouds.append(pts)
        onehot.append(np.eye(3)[kind])
        boxes.append([center[0], center[1], w, l, yaw])
    return TensorDataset(*(torch.tensor(np.array(a), dtype=torch.float32) for a in (clouds, onehot, boxes)))


class BoxEstimationNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(128 + 3, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 6))

    def forward(self, points, onehot):
        feat = self.point(points).amax(dim=1)
        out = self.fc(torch.cat([feat, onehot], dim=1))
        yaw = torch.atan2(out[:, 4], out[:, 5]) / 2
        return out[:, :2] + points.mean(dim=1), out[:, 2:4], yaw


def box_loss(center, size, yaw, boxes):
    return (F.smooth_l1_loss(center, boxes[:, :2]) + F.smooth_l1_loss(size, boxes[:, 2:4])
            + (1 - torch.cos(2 * (yaw - boxes[:, 4]))).mean() * 0.5)


@torch.no_grad()
def evaluate(model, loader, evaluator):
    model.eval()
    dets, gts = [], []
    for points, onehot, boxes in loader:
        center, size, yaw = model(points, onehot)
        dets.append(torch.cat([center, size, yaw.unsqueeze(1)], dim=1))
        gts.append(boxes)
    model.train()
    dets = np.ascontiguousarray(torch.cat(dets).double().numpy())
    gts = np.ascontiguousarray(torch.cat(gts).double().numpy())
    return [evaluator.eval_bev(dets.ctypes.data, gts.ctypes.data, len(dets), t) for t in (0.25, 0.5, 0.7)]


def main():
    torch.manual_seed(7)
    evaluator = compile_evaluator()
    train = DataLoader(make_split(512, 1), batch_size=32, shuffle=True)
    val = DataLoader(make_split(200, 2), batch_size=50)
    model = BoxEstimationNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recall = evaluate(model, val, evaluator)
    print("before training: bev recall @0.25 %.3f @0.50 %.3f @0.70 %.3f" % tuple(recall), flush=True)
    for epoch in range(1, 5):
        total = 0.0
        for points, onehot, boxes in train:
            loss = box_loss(*model(points, onehot), boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"**** EPOCH {epoch:03d} **** mean loss {total / len(train):.4f}", flush=True)
        recall = evaluate(model, val, evaluator)
        print("bev recall @0.25 %.3f @0.50 %.3f @0.70 %.3f" % tuple(recall), flush=True)
    torch.save(model.state_dict(), Path(tempfile.mkdtemp(prefix="log_")) / "model.pt")
    print("model saved", flush=True)


if __name__ == "__main__":
    main()
