import argparse
import os
import resource
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def limit_memory(gib):
    size = int(gib * (1 << 30))
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def render_sequences(root, count, frames, res):
    rng = np.random.default_rng(3)
    base = rng.integers(0, 255, size=(frames, 3, res, res), dtype=np.uint8)
    for i in range(count):
        folder = os.path.join(root, f"hydrant_{i:03d}")
        os.makedirs(folder)
        np.save(os.path.join(folder, "rgbs.npy"), np.roll(base, i * 7, axis=-1))
        np.save(os.path.join(folder, "poses.npy"), rng.normal(size=(frames, 4, 4)).astype(np.float32))


class CO3DDataset(Dataset):
    def __init__(self, root, imgs_per_obj=4):
        self.root = root
        self.imgs_per_obj = imgs_per_obj
        self.example_ids = sorted(os.listdir(root))
        self.all_rgbs = {}
        self.all_world_view_transforms = {}
        self.all_fg_masks = {}

    def __len__(self):
        return len(self.example_ids)

    def load_example_id(self, example_id):
        folder = os.path.join(self.root, example_id)
        rgbs = np.load(os.path.join(folder, "rgbs.npy"), mmap_mode="r")
        self.all_rgbs[example_id] = torch.stack(
            [torch.from_numpy(np.array(frame, dtype=np.float32) / 255.0) for frame in rgbs])
        self.all_fg_masks[example_id] = (self.all_rgbs[example_id].mean(1, keepdim=True) > 0.2).float()
        self.all_world_view_transforms[example_id] = torch.from_numpy(
            np.load(os.path.join(folder, "poses.npy")))

    def __getitem__(self, index):
        example_id = self.example_ids[index]
        if example_id not in self.all_rgbs:
            self.load_example_id(example_id)
        rgbs = self.all_rgbs[example_id]
        picks = torch.randperm(len(rgbs))[: self.imgs_per_obj]
        return {
            "gt_images": rgbs[picks] * self.all_fg_masks[example_id][picks],
            "world_view_transforms": self.all_world_view_transforms[example_id][picks],
        }


class SplatPredictor(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, dim, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(dim, dim * 2, 3, stride=2, padding=1), nn.SiLU(),
        )
        self.pose = nn.Linear(16, dim * 2)
        self.dec = nn.Conv2d(dim * 2, 3 * 16, 1)

    def forward(self, image, pose):
        h = self.enc(image) + self.pose(pose.flatten(1))[:, :, None, None]
        return torch.sigmoid(F.pixel_shuffle(self.dec(h), 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=110)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--resolution", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--mem-limit", type=float, default=1.5)
    args = parser.parse_args()
    torch.manual_seed(0)
    limit_memory(args.mem_limit)

    root = tempfile.mkdtemp(prefix="co3d_hydrants_")
    try:
        render_sequences(root, args.sequences, args.frames, args.resolution)
        dataset = CO3DDataset(root)
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=0, drop_last=True)
        model = SplatPredictor()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        iteration, start = 0, time.time()
        for epoch in range(args.epochs):
            for data in loader:
                src = data["gt_images"][:, 0]
                loss = 0.0
                for v in range(1, data["gt_images"].shape[1]):
                    pred = model(src, data["world_view_transforms"][:, v])
                    loss = loss + F.l1_loss(pred, data["gt_images"][:, v])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                iteration += 1
                if iteration % 5 == 0:
                    print(f"[{time.time() - start:6.1f}s] iteration {iteration} loss {loss.item():.4f}", flush=True)
        print("training done", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
