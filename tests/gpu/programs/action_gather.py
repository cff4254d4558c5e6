"""Evaluate a Q network on stored transitions."""

from __future__ import annotations

import torch
from torch import nn

ACTIONS = 6
NOOP = -1


def replay(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return states and actions of stored transitions."""
    generator = torch.Generator().manual_seed(9)
    states = torch.randn(size, 32, generator=generator)
    actions = torch.randint(0, ACTIONS, (size, 1), generator=generator)
    actions[size // 2] = NOOP
    return states, actions


def main() -> None:
    """Print the mean value of the actions taken."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, ACTIONS)).cuda()
    states, actions = replay(4096)
    with torch.no_grad():
        for begin in range(0, len(states), 512):
            values = network(states[begin : begin + 512].cuda())
            taken = values.gather(1, actions[begin : begin + 512].cuda())
            chosen = taken.cpu()
            print(f"{begin}: mean value {chosen.mean():.4f}")


if __name__ == "__main__":
    main()
