"""Embed the tiles of whole slides with two ranks and store all embeddings in one file."""
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

WORK = "/tmp/o15_slides"
TILE, DIM = 32, 768
SLIDES = {"S-0412": 160, "S-0413": 220, "S-0420": 6000, "S-0431": 4400, "S-0438": 1200}


class TileEncoder(nn.Module):
    def __init__(self, dim=DIM):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(64, dim)

    def forward(self, x):
        return self.head(self.body(x))


def tile_batch(slide, indices):
    seed = int(slide[2:]) * 10_000 + int(indices[0])
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(len(indices), 3, TILE, TILE, generator=rng)


class SlideShard:
    """The tiles of one slide that belong to this rank."""

    def __init__(self, slide, tiles, rank, world):
        self.slide = slide
        self.tiles = tiles
        self.indices = np.array_split(np.arange(tiles), world)[rank]

    def batches(self, size):
        for start in range(0, len(self.indices), size):
            yield self.indices[start:start + size]


class EmbeddingStore:
    def __init__(self, folder, slide, rows):
        self.path = os.path.join(folder, slide + ".f32")
        self.rows = rows
        self.data = np.memmap(self.path, dtype="f4", mode="w+", shape=(rows, DIM))

    def write(self, indices, values):
        self.data[indices] = values

    def close(self):
        self.data.flush()
        del self.data


def save_preview(slide, tiles):
    columns = 40
    rows = -(-min(tiles, 1200) // columns)
    canvas = tile_batch(slide, np.arange(rows * columns)).view(rows, columns, 3, TILE, TILE)
    canvas = canvas.permute(2, 0, 3, 1, 4).reshape(1, 3, rows * TILE, columns * TILE)
    scale = (160, 200)
    small = nn.functional.interpolate(canvas, size=(640, 800), mode="bicubic", antialias=True)
    small = nn.functional.interpolate(small, size=scale, mode="bicubic", antialias=True)
    np.save(os.path.join(WORK, slide + "_preview.npy"), small[0].clamp(0, 1).numpy())
    time.sleep(0.25)  # the viewer polls the folder


def embed_slide(model, shard, rank, batch_size=128):
    if rank == 0:
        save_preview(shard.slide, shard.tiles)
    last = int(shard.indices[-1]) + 1
    store = EmbeddingStore(WORK, shard.slide, last)
    with torch.no_grad():
        for indices in shard.batches(batch_size):
            store.write(indices, model(tile_batch(shard.slide, indices)).numpy())
    count = torch.tensor([len(shard.indices)])
    dist.all_reduce(count)
    store.close()
    return int(count)


def sync_model(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    os.makedirs(WORK, exist_ok=True)
    dist.barrier()
    model = TileEncoder().eval()
    sync_model(model)
    began = time.time()
    manifest = {}
    for slide, tiles in SLIDES.items():
        shard = SlideShard(slide, tiles, rank, world)
        manifest[slide] = embed_slide(model, shard, rank)
        if rank == 0:
            print(f"{slide}: {manifest[slide]} tiles, {time.time() - began:.1f} s", flush=True)
    if rank == 0:
        with open(os.path.join(WORK, "manifest.json"), "w") as f:
            json.dump(manifest, f)
        print("all slides embedded", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
