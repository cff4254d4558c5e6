"""Filters a signal with a compiled recurrent cell."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.compile(mode="reduce-overhead")
def cell(sample: Tensor, state: Tensor) -> Tensor:
    """Return the next state of the filter."""
    return torch.tanh(0.9 * state + 0.1 * sample)


@torch.no_grad()
def main() -> None:
    """Run the filter over the signal."""
    torch.manual_seed(0)
    signal = torch.randn(16, 64, 256, device="cuda")
    state = torch.zeros(64, 256, device="cuda")
    for sample in signal:
        state = cell(sample, state)
    print("final state", state.norm().item())


if __name__ == "__main__":
    main()
