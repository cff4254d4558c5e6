"""Leaks tensors until the device is full."""

from __future__ import annotations

import torch

kept = []


def train() -> None:
    """32 MiB a step."""
    torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(5):
        kept.append(torch.empty(32 << 20, dtype=torch.uint8, device="cuda"))
    torch.empty(128 << 20, dtype=torch.uint8, device="cuda")


if __name__ == "__main__":
    train()
