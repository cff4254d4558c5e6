import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("graph2plan")

ROOM_TYPES = ["living", "bedroom", "kitchen", "bathroom", "balcony", "entrance"]
MAX_ROOMS = 8


class FloorPlan:
    def __init__(self, data):
        self.boundary = data["boundary"]
        self.boxes = data["boxes"]
        self.types = data["types"]
        self.door = data["door"]

    def get_attributes(self, grid=5):
        x0, y0 = self.boundary[:2]
        w, h = self.boundary[2:] - self.boundary[:2]
        centres = (self.boxes[:, :2] + self.boxes[:, 2:]) / 2
        cell = np.stack([(centres[:, 0] - x0) / w * grid, (centres[:, 1] - y0) / h * grid], 1).astype(int)
        area = np.prod(self.boxes[:, 2:] - self.boxes[:, :2], axis=1) / (w * h)
        return np.clip(cell, 0, grid - 1), area

    def get_inside_box(self):
        x0, y0, x1, y1 = self.boundary.round().astype(int)
        inside = np.zeros((y1 - y0, x1 - x0), np.float32)
        for box in self.boxes:
            bx0, by0, bx1, by1 = (box - [x0, y0, x0, y0]).round().astype(int)
            inside[by0:by1, bx0:bx1] = 1.0
        door_x, door_y = (self.door - [x0, y0]).round().astype(int)
        inside[door_y, door_x] = 2.0
        return inside


class FloorPlanDataset(Dataset):
    def __init__(self, count, size=64, seed=0):
        rng = np.random.default_rng(seed)
        self.size = size
        self.plans = [self.sample(rng) for _ in range(count)]

    @staticmethod
    def sample(rng):
        x0, y0 = rng.integers(4, 24, 2)
        w, h = rng.integers(110, 220, 2)
        boundary = np.array([x0, y0, x0 + w, y0 + h], np.float64)
        rooms = int(rng.integers(3, MAX_ROOMS))
        cuts = np.sort(rng.uniform(0.15, 0.85, rooms - 1))
        edges = np.concatenate([[0], cuts, [1]])
        boxes = np.stack([x0 + edges[:-1] * w, np.full(rooms, y0), x0 + edges[1:] * w, np.full(rooms, y0 + h)], 1)
        types = rng.integers(0, len(ROOM_TYPES), rooms)
        side = rng.choice(4, p=[0.5, 0.48, 0.015, 0.005])
        along = rng.uniform(0.1, 0.9)
        door = [(x0 + along * w, y0), (x0, y0 + along * h), (x0 + along * w, y0 + h), (x0 + w, y0 + along * h)][side]
        return {"boundary": boundary, "boxes": boxes, "types": types, "door": np.array(door)}

    def __len__(self):
        return len(self.plans)

    def __getitem__(self, i):
        plan = FloorPlan(self.plans[i])
        cell, area = plan.get_attributes()
        inside = torch.from_numpy(plan.get_inside_box())[None, None]
        image = F.interpolate(inside, (self.size, self.size), mode="nearest")[0]
        rooms = torch.full((MAX_ROOMS, 3), -1, dtype=torch.long)
        rooms[:len(cell), 0] = torch.from_numpy(plan.types)
        rooms[:len(cell), 1:] = torch.from_numpy(cell)
        w, h = plan.boundary[2:] - plan.boundary[:2]
        boxes = torch.zeros(MAX_ROOMS, 4)
        scaled = (plan.boxes - np.tile(plan.boundary[:2], 2)) / [w, h, w, h]
        boxes[:len(cell)] = torch.from_numpy(scaled).float()
        return image, rooms, boxes


class Graph2Plan(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.type_embed = nn.Embedding(len(ROOM_TYPES) + 1, dim)
        self.cell_embed = nn.Embedding(26, dim)
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, dim))
        self.mix = nn.TransformerEncoderLayer(dim, 4, 96, dropout=0.0, batch_first=True)
        self.box = nn.Linear(dim, 4)

    def forward(self, image, rooms):
        missing = rooms[..., 0] < 0
        cell = torch.where(missing, 25, rooms[..., 1] * 5 + rooms[..., 2])
        nodes = self.type_embed(rooms[..., 0] + 1) + self.cell_embed(cell) + self.encoder(image)[:, None]
        return self.box(self.mix(nodes, src_key_padding_mask=missing)).sigmoid(), ~missing


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epoch", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(8)
    loader = DataLoader(FloorPlanDataset(640, seed=5), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.num_workers)
    model = Graph2Plan()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epoch):
        start = time.time()
        for step, (image, rooms, boxes) in enumerate(loader):
            pred, valid = model(image, rooms)
            loss = F.smooth_l1_loss(pred[valid], boxes[valid])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                log.info("epoch %d iter %d/%d box loss %.5f", epoch, step, len(loader), loss.item())
        log.info("epoch %d took %.1fs", epoch, time.time() - start)


if __name__ == "__main__":
    main()
