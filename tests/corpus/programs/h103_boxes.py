"""Train a box-quality scorer on annotation files that a pool of processes parses.

python h103_boxes.py
"""
import argparse
import multiprocessing as mp
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

CLASSES = {"car": 0, "pedestrian": 1, "cyclist": 2, "van": 3}


class AnnotationError(Exception):
    """A line of an annotation file that cannot be used."""

    def __init__(self, path, line_no, reason):
        super().__init__(f"{path}, line {line_no}: {reason}")
        self.path = path
        self.line_no = line_no
        self.reason = reason


def write_annotations(root, split, num_files, seed):
    rng = np.random.default_rng(seed)
    folder = root / split
    folder.mkdir(parents=True, exist_ok=True)
    names = list(CLASSES)
    for i in range(num_files):
        lines = []
        for _ in range(200):
            x, y = rng.uniform(0, 1200, 2)
            w, h = rng.uniform(8, 200, 2)
            name = names[rng.integers(len(names))]
            lines.append(f"{name} {x:.1f} {y:.1f} {x + w:.1f} {y + h:.1f} {rng.uniform():.3f}")
        if split == "val" and i == 17:
            lines[120] = "tram 411.0 170.2 590.7 260.9 0.551"
        (folder / f"{i:06d}.txt").write_text("\n".join(lines) + "\n")


def parse_file(path):
    rows = []
    for line_no, line in enumerate(path.read_text().splitlines(), 1):
        name, *numbers = line.split()
        if name not in CLASSES:
            raise AnnotationError(str(path), line_no, f"unknown class {name!r}")
        x1, y1, x2, y2, quality = map(float, numbers)
        rows.append([CLASSES[name], x1 / 1400, y1 / 1400, (x2 - x1) / 200, (y2 - y1) / 200, quality])
    return np.asarray(rows, dtype=np.float32)


def load_split(root, split, workers):
    paths = sorted((root / split).glob("*.txt"))
    with mp.get_context("spawn").Pool(workers) as pool:
        tables = []
        for table in pool.imap(parse_file, paths, chunksize=4):
            tables.append(table)
            if len(tables) % 10 == 0:
                print(f"{split}: {len(tables)}/{len(paths)} files", flush=True)
    data = torch.from_numpy(np.concatenate(tables))
    return data[:, :5], data[:, 5]


class QualityNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(len(CLASSES), 8)
        self.net = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, boxes):
        x = torch.cat([self.embed(boxes[:, 0].long()), boxes[:, 1:]], dim=1)
        return self.net(x).squeeze(1)


def train(model, boxes, quality, epochs, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = 0.0
        for idx in torch.randperm(len(boxes)).split(batch_size):
            loss = nn.functional.mse_loss(model(boxes[idx]), quality[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        print(f"epoch {epoch}: loss {total / len(boxes):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path("annotations"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    write_annotations(args.root, "train", 60, seed=1)
    write_annotations(args.root, "val", 30, seed=2)
    boxes, quality = load_split(args.root, "train", args.workers)
    model = QualityNet()
    train(model, boxes, quality, args.epochs, args.batch_size)

    val_boxes, val_quality = load_split(args.root, "val", args.workers)
    with torch.no_grad():
        error = (model(val_boxes) - val_quality).abs().mean()
    print(f"validation: mean absolute error {error:.4f} on {len(val_boxes)} boxes", flush=True)


if __name__ == "__main__":
    main()
