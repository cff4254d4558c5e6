"""Embed the tiles of whole-slide images with a small tile encoder, all ranks sharing the work.

torchrun --standalone --nproc-per-node 2 h101_slides.py --output-dir features
"""
import argparse
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset

SLIDES = {"TCGA-02": 420, "TCGA-06": 512, "TCGA-14": 480}
TISSUE_ROWS = {"TCGA-02": 0.5, "TCGA-06": 0.5, "TCGA-14": 0.8}


class TileDataset(Dataset):
    """Tiles of one slide, row by row; the tissue mask says which rank gets which rows."""

    def __init__(self, name, tile_size=32):
        self.name = name
        self.num_tiles = SLIDES[name]
        self.tile_size = tile_size
        self.seed = sum(map(ord, name))

    def __len__(self):
        return self.num_tiles

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seed * 10_000 + index)
        tile = rng.integers(0, 255, (3, self.tile_size, self.tile_size), dtype=np.uint8)
        return index, torch.from_numpy(tile).float().div_(255.0)

    def split(self, rank, world_size):
        cut = int(self.num_tiles * TISSUE_ROWS[self.name])
        bounds = [0, cut, self.num_tiles] if world_size == 2 else np.linspace(0, self.num_tiles, world_size + 1)
        return list(range(int(bounds[rank]), int(bounds[rank + 1])))


@contextmanager
def main_rank_first(rank):
    """Rank 0 goes through the block before the others do."""
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


class TileEncoder(nn.Module):
    def __init__(self, features_dim=512):
        super().__init__()
        self.features_dim = features_dim
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )
        self.head = nn.Linear(32 * 16, features_dim)

    def forward(self, x):
        return self.head(self.body(x))


class FeatureFile:
    """Features on disk: a slide may have more tiles than fit in memory."""

    def __init__(self, path, num_tiles, features_dim):
        self.features = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float32, shape=(num_tiles, features_dim))
        self.filled = 0

    def append(self, batch):
        stop = self.filled + len(batch)
        self.features[self.filled:stop] = batch
        self.filled = stop

    def close(self):
        self.features.flush()
        return self.filled


@torch.inference_mode()
def embed_slide(model, name, output_dir, batch_size, rank, world_size):
    dataset = TileDataset(name)
    tiles = dataset.split(rank, world_size)
    loader = DataLoader(Subset(dataset, tiles), batch_size=batch_size)
    with main_rank_first(rank):
        output_dir.mkdir(parents=True, exist_ok=True)
        store = FeatureFile(output_dir / f"{name}.npy", len(tiles), model.features_dim)
    dist.barrier()
    for step, (_, images) in enumerate(loader):
        store.append(model(images).numpy())
        if step % 4 == 0:
            print(f"[rank {rank}] {name}: {store.filled}/{len(tiles)} tiles", flush=True)
    done = torch.tensor([store.close()])
    dist.all_reduce(done)
    return int(done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", type=Path, default=Path("features"))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--slides", nargs="*", default=list(SLIDES))
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TileEncoder().eval()

    for name in args.slides:
        total = embed_slide(model, name, args.output_dir, args.batch_size, rank, world_size)
        if rank == 0:
            print(f"{name}: {total} of {SLIDES[name]} tiles embedded", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
