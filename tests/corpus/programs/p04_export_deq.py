"""Export an unrolled equilibrium block as TorchScript for the C++ service and compare it with eager."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class EquilibriumBlock(nn.Module):
    """z <- tanh(W z + b), a fixed number of times; enough steps make it independent of the start."""

    def __init__(self, width, steps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)
        self.bias = nn.Parameter(torch.zeros(width))
        self.steps = steps

    def forward(self, z):
        for _ in range(self.steps):
            z = torch.tanh(F.linear(z, self.weight, self.bias))
        return z


class Scorer(nn.Module):
    def __init__(self, width=8, steps=50):
        super().__init__()
        self.inp = nn.Linear(4, width)
        self.block = EquilibriumBlock(width, steps)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.block(self.inp(x)))


def to_torchscript(model, example):
    start = time.time()
    with torch.no_grad():
        scripted = torch.jit.trace(model.eval(), example, check_trace=False)
    print(f"{model.block.steps} steps traced in {time.time() - start:.1f} s", flush=True)
    return scripted


def compare(model, scripted, example):
    with torch.no_grad():
        want = model(example)
        got = scripted(example)
    print("max |eager - script| =", (want - got).abs().max().item(), flush=True)


def main():
    torch.manual_seed(0)
    example = torch.randn(2, 4)
    for steps in (50, 500, 12_000):
        model = Scorer(steps=steps)
        scripted = to_torchscript(model, example)
        compare(model, scripted, example)
    scripted.save("/tmp/scorer.pt")


if __name__ == "__main__":
    main()
