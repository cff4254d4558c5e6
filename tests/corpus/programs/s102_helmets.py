"""Train a small helmet classifier on camera crops that a native loader reads from disk."""
import argparse
import ctypes
import struct
import subprocess
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIZE = 32
SITES = {
    "gate_north": "construction/gate_north",
    "crane_02": "construction/crane_02",
    "tunnel": "2024-helmet-inspection/underground-works/section-04-east-portal/shift-b/2024-11-21-night/camera-17-ceiling",
}


def build_library():
    source = Path(__file__).with_name("s102_imageload.c")
    target = Path("libimageload.so").resolve()
    flags = ["-O2", "-g", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"]
    subprocess.run(["gcc", *flags, "-w", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return target


def write_crops(root, rng, count):
    for site, folder in SITES.items():
        directory = root / folder
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            label = number % 2
            pixels = rng.integers(0, 120, (3, SIZE, SIZE), dtype=np.uint8)
            pixels[label, 8:24, 8:24] += 100
            name = directory / f"crop_{number:04d}_{label}.img"
            header = struct.pack("iii", SIZE, SIZE, 3)
            name.write_bytes(header + pixels.tobytes())
        # transfers that the cameras broke off
        for number in range(5, count, 37):
            name = directory / f"crop_{number:04d}_{number % 2}.img"
            name.write_bytes(name.read_bytes()[:6])


class CropDataset(Dataset):
    def __init__(self, directory, library):
        self.files = sorted(directory.glob("*.img"))
        self.unreadable = str(directory.parent / "bad.list")
        self.library = library
        self.lib = None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.lib is None:
            self.lib = ctypes.CDLL(str(self.library))
        path = self.files[index]
        image = np.empty((3, SIZE, SIZE), dtype=np.float32)
        self.lib.load_image(str(path).encode(), self.unreadable.encode(),
                            image.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), SIZE, SIZE, 3)
        return torch.from_numpy(image), int(path.stem[-1])


class HelmetNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2),
                                      nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 2)

    def forward(self, images):
        return self.head(self.features(images))


def run_epoch(model, loader, optimizer):
    total, correct = 0.0, 0
    for images, labels in loader:
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        correct += (logits.argmax(1) == labels).sum().item()
    return total / len(loader.dataset), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--crops", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = args.data
    write_crops(root, np.random.default_rng(0), args.crops)
    library = build_library()
    model = HelmetNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for site, folder in SITES.items():
        loader = DataLoader(CropDataset(root / folder, library), batch_size=16, num_workers=args.workers)
        for epoch in range(args.epochs):
            loss, accuracy = run_epoch(model, loader, optimizer)
            print(f"site {site}: epoch {epoch} loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)
    torch.save(model.state_dict(), "helmets.pt")
    print("saved helmets.pt", flush=True)


if __name__ == "__main__":
    main()
