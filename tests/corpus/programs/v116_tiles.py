"""Tile features of tissue slides, the tiles of each slide shared among the processes.

torchrun --standalone --nproc-per-node 2 v116_tiles.py --slides 3
"""
import argparse
import os
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn


@contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


class TileEncoder(nn.Module):
    def __init__(self, dim=384):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv2d(48, 96, 3, stride=2, padding=1), nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, dim))

    def forward(self, x):
        return self.layers(x)


class Slide:
    def __init__(self, number, grid=64, tile=48):
        self.name = f"slide_{number:03d}"
        self.tile = tile
        yy, xx = np.mgrid[0:grid, 0:grid] / grid
        density = np.exp(-((xx - 0.35) ** 2 + (yy - 0.5 - 0.02 * number) ** 2) / 0.08)
        self.coordinates = np.argwhere(density > 0.3)

    def shard(self, rank, world_size):
        """Tiles left and right of the middle column go to different processes."""
        column = self.coordinates[:, 1] * world_size // 64
        return self.coordinates[column == rank]

    def read(self, coordinates):
        tiles = np.empty((len(coordinates), 3, self.tile, self.tile), np.float32)
        for k, (row, col) in enumerate(coordinates):
            tiles[k] = np.random.default_rng(int(row) * 64 + int(col)).random(tiles.shape[1:], np.float32)
        return torch.from_numpy(tiles)


@torch.inference_mode()
def run_inference(model, slide, coordinates, features, batch_size, rank):
    for start in range(0, len(coordinates), batch_size):
        stop = min(start + batch_size, len(coordinates))
        feature = model(slide.read(coordinates[start:stop])).numpy()
        features[start:stop] = feature
        if start // batch_size % 10 == 0:
            print(f"[rank {rank}] {slide.name} {stop}/{len(coordinates)} tiles", flush=True)
    features.flush()


def process_slide(model, slide, args, rank, world_size):
    coordinates = slide.shard(rank, world_size)
    dim = model(slide.read(coordinates[:1])).shape[-1]
    path = os.path.join(args.tmp_dir, f"{slide.name}.npy")
    with main_process_first(rank):
        os.makedirs(args.tmp_dir, exist_ok=True)
        features = np.memmap(path, dtype=np.float32, mode="w+", shape=(len(coordinates), dim))
    run_inference(model, slide, coordinates, features, args.batch_size, rank)
    mean = torch.from_numpy(np.array(features)).mean(0)
    total = torch.tensor([float(len(coordinates))])
    mean *= total
    dist.all_reduce(mean)
    dist.all_reduce(total)
    return mean / total, int(total.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slides", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--tmp-dir", default="tile_features")
    parser.add_argument("--output", default="slide_features.pt")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    model = TileEncoder().eval()

    result = {}
    for number in range(args.slides):
        slide = Slide(number)
        feature, tiles = process_slide(model, slide, args, rank, world_size)
        result[slide.name] = feature
        if rank == 0:
            print(f"{slide.name}: {tiles} tiles", flush=True)
    if rank == 0:
        torch.save(result, args.output)
        print(f"wrote {args.output}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
