import datetime
import math
import torch
import torch.distributed as dist
import torch.nn as nn

DIM, MICRO = 32, 8


class Loader:
    def __init__(self, samples, batch, drop_last):
        self.samples, self.batch, self.drop_last = samples, batch, drop_last

    def __len__(self):
        return self.samples // self.batch if self.drop_last else math.ceil(self.samples / self.batch)

    def __iter__(self):
        gen = torch.Generator().manual_seed(1)
        for _ in range(len(self)):
            yield torch.randn(self.batch, DIM, generator=gen)


class Stage:
    """A part of the network; hands its output to the next rank."""

    def __init__(self, rank, world):
        torch.manual_seed(rank)
        self.rank, self.last = rank, rank == world - 1
        self.block = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU())

    def run(self, x=None):
        if self.rank > 0:
            x = torch.empty(MICRO, DIM)
            dist.recv(x, src=self.rank - 1)
        out = self.block(x)
        if not self.last:
            dist.send(out, dst=self.rank + 1)
        return out


def steps_of_epoch(config):
    return math.ceil(config["samples"] / MICRO)


@torch.no_grad()
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
    rank, world = dist.get_rank(), dist.get_world_size()
    config = {"samples": 100, "drop_last": True}
    stage = Stage(rank, world)
    total = torch.zeros(1)
    if rank == 0:
        for x in Loader(config["samples"], MICRO, config["drop_last"]):
            stage.run(x)
    else:
        for _ in range(steps_of_epoch(config)):
            total += stage.run().square().mean()
    print("rank", rank, "is through", flush=True)
    dist.all_reduce(total)
    if rank == 0:
        print("mean", total.item())
    dist.destroy_process_group()


main()
