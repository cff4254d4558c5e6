"""Domain-decomposed heat solver: each rank owns a strip and learns a correction on top."""
import time

import torch
import torch.distributed as dist
from torch import nn


class Strip:
    """The rows of the grid that this rank owns, with one block of ghost rows at each side."""

    def __init__(self, rank, world, rows, cols, ghost):
        self.rank, self.world, self.ghost = rank, world, ghost
        gen = torch.Generator().manual_seed(100 + rank)
        self.field = torch.zeros(rows + 2 * ghost, cols)
        self.field[ghost:-ghost] = torch.rand(rows, cols, generator=gen)

    @property
    def inner(self):
        return self.field[self.ghost:-self.ghost]

    def neighbours(self):
        lower = self.rank + 1 if self.rank + 1 < self.world else None
        upper = self.rank - 1 if self.rank > 0 else None
        return upper, lower

    def exchange(self):
        upper, lower = self.neighbours()
        g = self.ghost
        if lower is not None:
            dist.send(self.field[-2 * g:-g].contiguous(), dst=lower)
        if upper is not None:
            dist.send(self.field[g:2 * g].contiguous(), dst=upper)
        if upper is not None:
            edge = torch.empty(g, self.field.shape[1])
            dist.recv(edge, src=upper)
            self.field[:g] = edge
        if lower is not None:
            edge = torch.empty(g, self.field.shape[1])
            dist.recv(edge, src=lower)
            self.field[-g:] = edge

    def diffuse(self, alpha):
        f = self.field
        lap = (f[:-2, 1:-1] + f[2:, 1:-1] + f[1:-1, :-2] + f[1:-1, 2:] - 4 * f[1:-1, 1:-1])
        f[1:-1, 1:-1] += alpha * lap


class Correction(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 3, padding=1))

    def forward(self, x):
        return x + 0.1 * self.net(x[None, None])[0, 0]


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def share_parameters(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def total_heat(strip):
    heat = strip.inner.sum()
    dist.all_reduce(heat)
    return heat.item()


def fit(model, strip, world, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    target = strip.inner.clone()
    for _ in range(steps):
        loss = (model(target) - target.mean()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    strip = Strip(rank, world, rows=256, cols=512, ghost=4)
    model = Correction()
    share_parameters(model)
    print(f"[{rank}] heat at start {total_heat(strip):.1f}", flush=True)
    loss = fit(model, strip, world, 4)
    print(f"[{rank}] fitted, loss {loss:.4f}", flush=True)
    start = time.time()
    for step in range(20):
        strip.exchange()
        strip.diffuse(0.2)
        if step % 5 == 0:
            heat = total_heat(strip)
            if rank == 0:
                print(f"step {step} heat {heat:.1f}", flush=True)
    with torch.no_grad():
        strip.inner.copy_(model(strip.inner))
    print(f"[{rank}] finished in {time.time() - start:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
