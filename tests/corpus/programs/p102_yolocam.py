"""Run the small gate-camera detector on a recorded folder: letterbox in C, network in torch."""
import argparse
import ctypes
import subprocess
from pathlib import Path

import numpy as np
import torch
from torch import nn

SOURCE = Path(__file__).with_name("p102_letterbox.c")


def load_library(build_dir):
    build_dir.mkdir(exist_ok=True)
    target = build_dir / "libletterbox.so"
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", str(target), str(SOURCE), "-lm"], check=True)
    lib = ctypes.CDLL(str(target.resolve()))
    lib.letterbox.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                              ctypes.c_void_p, ctypes.c_int]
    lib.letterbox.restype = ctypes.c_float
    return lib


class Letterbox:
    def __init__(self, lib, side):
        self.lib = lib
        self.side = side

    def __call__(self, image):
        image = np.ascontiguousarray(image)
        h, w, c = image.shape
        out = np.zeros((c, self.side, self.side), dtype=np.float32)
        scale = self.lib.letterbox(image.ctypes.data, w, h, c, out.ctypes.data, self.side)
        return torch.from_numpy(out), scale


class GateDetector(nn.Module):
    def __init__(self, classes=3, anchors=2):
        super().__init__()
        self.classes, self.anchors = classes, anchors
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1),
            nn.Conv2d(16, 32, 3, stride=4, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1))
        self.head = nn.Conv2d(32, anchors * (5 + classes), 1)

    def forward(self, x):
        y = self.head(self.backbone(x))
        b, _, gh, gw = y.shape
        return y.view(b, self.anchors, 5 + self.classes, gh, gw)


class Recording:
    """Frames of one gate, as the recorder writes them: raw RGB with the size in the name."""

    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.rgb"))

    def __iter__(self):
        for path in self.files:
            w, h = (int(v) for v in path.stem.rsplit("_", 1)[1].split("x"))
            yield path.name, np.fromfile(path, dtype=np.uint8).reshape(h, w, 3)


def record_demo(folder, rng):
    folder.mkdir(exist_ok=True)
    sizes = [(640, 480)] * 6 + [(704, 576)] * 4 + [(1920, 1080)] * 2
    for n, (w, h) in enumerate(sizes):
        frame = rng.integers(0, 256, size=(h // 8, w // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        frame.tofile(folder / f"gate_{n:03d}_{w}x{h}.rgb")


def boxes_above(prediction, threshold):
    score = prediction[:, :, 4].sigmoid() * prediction[:, :, 5:].softmax(dim=2).amax(dim=2)
    return int((score > threshold).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("recording"))
    parser.add_argument("--side", type=int, default=416)
    parser.add_argument("--threshold", type=float, default=0.21)
    args = parser.parse_args()
    torch.manual_seed(3)
    record_demo(args.folder, np.random.default_rng(3))
    prepare = Letterbox(load_library(Path("build")), args.side)
    model = GateDetector().eval()
    total = 0
    with torch.no_grad():
        for name, frame in Recording(args.folder):
            tensor, scale = prepare(frame)
            found = boxes_above(model(tensor[None]), args.threshold)
            total += found
            print(f"{name}: scale {scale:.3f}, {found} boxes", flush=True)
    print(f"done, {total} boxes")


if __name__ == "__main__":
    main()
