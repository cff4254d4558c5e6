import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("pair_depth")


def write_scenes(root, n_scenes=60, n_frames=8, res=32, seed=2):
    rng = np.random.default_rng(seed)
    for s in range(n_scenes):
        yy, xx = np.mgrid[0:res, 0:res] / res
        depth = np.empty((n_frames, res, res), dtype=np.float32)
        for f in range(n_frames):
            plane = 1.5 + rng.uniform(-1, 1) * xx + rng.uniform(-1, 1) * yy
            plane[rng.random((res, res)) < 0.35] = 0.0
            depth[f] = plane
        coverage = rng.random(n_frames) < rng.beta(2.0, 0.6)
        depth[~coverage] = 0.0
        rgb = rng.random((n_frames, 3, res, res), dtype=np.float32)
        np.savez(os.path.join(root, f"scene_{s:03d}.npz"), rgb=rgb, depth=depth)


class PairDataset(Dataset):
    def __init__(self, root, pairs_per_scene=8, seed=777):
        self.root = root
        self.scenes = sorted(f for f in os.listdir(root) if f.endswith(".npz"))
        self.pairs_per_scene = pairs_per_scene
        self.seed = seed
        self.invalid = {}

    def __len__(self):
        return len(self.scenes) * self.pairs_per_scene

    def load(self, scene):
        with np.load(os.path.join(self.root, scene)) as z:
            return z["rgb"], z["depth"]

    def __getitem__(self, index):
        scene = self.scenes[index // self.pairs_per_scene]
        rng = np.random.default_rng(self.seed + index)
        rgb, depth = self.load(scene)
        n = len(rgb)
        invalid = self.invalid.setdefault(scene, np.zeros(n, dtype=bool))
        first = int(rng.integers(n))
        todo = [first, (first + int(rng.integers(1, 4))) % n]
        views = []
        while len(todo) > 0:
            idx = todo.pop()
            if invalid[idx]:
                step = 2 * int(rng.integers(2)) - 1
                for offset in range(1, n):
                    other = (idx + step * offset) % n
                    if not invalid[other]:
                        idx = other
                        break
            depthmap = depth[idx]
            if (depthmap > 0.0).sum() == 0:
                invalid[idx] = True
                todo.append(idx)
                continue
            views.append((rgb[idx], depthmap))
        imgs = np.concatenate([v[0] for v in views])
        depths = np.stack([v[1] for v in views])
        return torch.from_numpy(imgs), torch.from_numpy(depths)


class PairNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(6, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2, 1),
        )

    def forward(self, x):
        return self.body(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="scenes_") if rank == 0 else None]
    if rank == 0:
        write_scenes(box[0])
    dist.broadcast_object_list(box, src=0)

    train = PairDataset(box[0])
    sampler = DistributedSampler(train, shuffle=True, seed=3)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True)
    model = DDP(PairNet())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for it, (imgs, depths) in enumerate(loader):
            mask = depths > 0
            loss = (model(imgs) - depths).abs()[mask].mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and it % 5 == 0:
                log.info("epoch %d it %d/%d loss %.4f", epoch, it, len(loader), loss.item())
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(box[0], "pairnet.pt"))
        log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
