"""A plain script: a training step calls native code with a null pointer.

pytracer run -- python examples/null_in_step.py
"""

from __future__ import annotations

import ctypes

import torch
from torch import nn

FAULTY_STEP = 5


def log_header(step: int) -> bytes:
    """Reads a header from a library that "was not loaded": its address is null."""
    header = ctypes.c_void_p(None if step == FAULTY_STEP else ctypes.addressof(ctypes.create_string_buffer(64)))
    return ctypes.string_at((header.value or 0) + 24, 8)


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    loss = net(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    log_header(step)
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(10):
        print(f"step {step}: loss {train_step(net, optimizer, step):.4f}", flush=True)


if __name__ == "__main__":
    main()
