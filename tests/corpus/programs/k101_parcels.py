"""Counts parcels on the sorting belt: a small YOLO-style detector whose boxes are decoded by the C layer."""
import argparse
import subprocess
import tempfile
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_int
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

NAMES = ["box", "bag", "tube"]
SIDE = 6
CELL = 8


class BOX(Structure):
    _fields_ = [("x", c_float), ("y", c_float), ("w", c_float), ("h", c_float)]


class DETECTION(Structure):
    _fields_ = [("bbox", BOX),
                ("classes", c_int),
                ("prob", POINTER(c_float)),
                ("mask", POINTER(c_float)),
                ("objectness", c_float),
                ("sort_class", c_int)]


def load_library(build_dir):
    source = Path(__file__).with_name("k101_parcels.c")
    target = Path(build_dir) / "libparcels.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
    lib = CDLL(str(target))
    lib.get_network_boxes.argtypes = [POINTER(c_float), c_int, c_int, c_float, POINTER(c_int)]
    lib.get_network_boxes.restype = POINTER(DETECTION)
    lib.do_nms_obj.argtypes = [POINTER(DETECTION), c_int, c_int, c_float]
    lib.free_detections.argtypes = [POINTER(DETECTION), c_int]
    return lib


def draw_belt(generator, parcels):
    image = 0.05 * torch.rand(3, SIDE * CELL, SIDE * CELL, generator=generator)
    target = torch.zeros(SIDE, SIDE, 5 + len(NAMES))
    for cell in torch.randperm(SIDE * SIDE, generator=generator)[:parcels].tolist():
        row, col = divmod(cell, SIDE)
        kind = int(torch.randint(len(NAMES), (1,), generator=generator))
        y, x = row * CELL, col * CELL
        image[kind, y + 1:y + 7, x + 1:x + 7] = 1.0
        target[row, col, :5] = torch.tensor([1.0, 0.5, 0.5, 6 / (SIDE * CELL), 6 / (SIDE * CELL)])
        target[row, col, 5 + kind] = 1.0
    return image, target


class BeltNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, CELL, stride=CELL)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv2d(16, 32, 1), nn.ReLU(), nn.Conv2d(32, 5 + len(NAMES), 1))

    def forward(self, x):
        return torch.sigmoid(self.head(self.stem(x))).permute(0, 2, 3, 1)


def train(model, steps, generator):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        pairs = [draw_belt(generator, 1 + i % 4) for i in range(16)]
        images, targets = (torch.stack(t) for t in zip(*pairs))
        pred = model(images)
        loss = F.binary_cross_entropy(pred[..., 0], targets[..., 0])
        loss = loss + ((pred[..., 1:] - targets[..., 1:]) ** 2 * targets[..., :1]).sum(-1).mean() * 5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def detect(lib, model, image, thresh=0.5, nms=0.45):
    with torch.no_grad():
        out = model(image[None])[0].contiguous()
    num = c_int(0)
    pointer = out.numpy().ctypes.data_as(POINTER(c_float))
    dets = lib.get_network_boxes(pointer, SIDE, len(NAMES), thresh, byref(num))
    lib.do_nms_obj(dets, num.value, len(NAMES), nms)
    found = []
    for j in range(num.value):
        for i, name in enumerate(NAMES):
            if dets[j].prob[i] > 0.3:
                b = dets[j].bbox
                found.append((name, dets[j].prob[i], (b.x, b.y, b.w, b.h)))
    lib.free_detections(dets, num.value)
    return sorted(found, key=lambda item: -item[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--frames", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(3)
    model = BeltNet()
    train(model, args.steps, generator)
    model.eval()
    with tempfile.TemporaryDirectory() as build_dir:
        lib = load_library(build_dir)
        for frame in range(args.frames):
            image, _ = draw_belt(generator, 1 if frame < 12 else 1 + frame % 3)
            found = detect(lib, model, image)
            print(f"frame {frame}: " + ", ".join(f"{n} {p:.2f}" for n, p, _ in found), flush=True)
    print("done")


if __name__ == "__main__":
    main()
