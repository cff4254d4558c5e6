"""Segment the tiles of a satellite scene with two processes. Tiles differ a lot
in cost, so both ranks draw the next tile from a common counter, dear ones first."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

OUT = "/tmp/m64_tiles_out"
WORLD = 2
# (rows, cols, refinement rounds) of every tile of the scene
TILES = [(192, 192, 500), (128, 128, 8), (128, 96, 8), (96, 128, 6), (96, 96, 5), (96, 96, 5),
         (96, 96, 4), (64, 128, 4), (64, 96, 4), (64, 64, 3)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Segmenter(nn.Module):
    def __init__(self, bands=4, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(bands, 16, 3, padding=1)
        self.mix = nn.Conv2d(16 + classes, 16, 3, padding=1)
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, image, rounds):
        feats = self.stem(image).relu()
        logits = self.head(feats)
        for _ in range(rounds):
            hidden = self.mix(torch.cat([feats, logits.softmax(1)], 1)).relu()
            logits = 0.7 * logits + 0.3 * self.head(hidden)
        return logits


class TileQueue:
    """Work list shared by the ranks: whoever is free takes the next number."""

    def __init__(self, store, n):
        self.store, self.n = store, n

    def __iter__(self):
        while True:
            i = self.store.add("next_tile", 1) - 1
            if i >= self.n:
                return
            yield i

    def report(self, i, share):
        self.store.set(f"tile_{i}", f"{share:.4f}")
        self.store.add("tiles_done", 1)


def load_tile(i):
    rows, cols, rounds = TILES[i]
    g = torch.Generator().manual_seed(100 + i)
    return torch.rand(1, 4, rows, cols, generator=g), rounds


def sync_weights(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


@torch.no_grad()
def segment(model, i):
    image, rounds = load_tile(i)
    labels = model(image, rounds).argmax(1).to(torch.uint8)
    torch.save(labels, os.path.join(OUT, f"tile_{i:02d}.pt"))
    return labels.float().mean().item()


@torch.no_grad()
def write_overview(model, side=160):
    """Low-resolution picture of the whole scene for the browser."""
    panes = []
    for i in range(len(TILES)):
        image = nn.functional.interpolate(load_tile(i)[0], size=(side, side), mode="bicubic")
        panes.append(model(image, 8).argmax(1)[0].to(torch.uint8))
    torch.save(torch.stack(panes), os.path.join(OUT, "overview.pt"))


def worker(rank, port):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    store = dist.TCPStore("127.0.0.1", port, WORLD, is_master=(rank == 0))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    model = Segmenter().eval()
    sync_weights(model)
    warmup = torch.tensor([segment(model, 8 + rank)])
    dist.all_reduce(warmup)
    if rank == 0:
        print(f"warm-up mean class {warmup.item() / WORLD:.3f}", flush=True)
        write_overview(model)

    queue = TileQueue(store, len(TILES))
    taken = []
    for i in queue:
        share = segment(model, i)
        queue.report(i, share)
        taken.append(i)
        print(f"rank {rank} tile {i} mean class {share:.3f}", flush=True)
    print(f"rank {rank} has no more tiles, {len(taken)} done", flush=True)
    if rank == 0:
        summarise(taken)


def summarise(taken):
    sizes = [os.path.getsize(os.path.join(OUT, f"tile_{i:02d}.pt")) for i in taken]
    with open(os.path.join(OUT, "rank0.txt"), "w") as f:
        f.write(f"{len(taken)} tiles, {sum(sizes)} bytes\n")


def main():
    os.makedirs(OUT, exist_ok=True)
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)
    print("scene finished", flush=True)


if __name__ == "__main__":
    main()
