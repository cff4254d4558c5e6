"""Compute per-batch statistics of item vectors."""

from __future__ import annotations

import torch

ITEMS = 50_000
BATCH = 512


def load_interactions() -> torch.Tensor:
    """Return the item ids of all interactions, as they stand in the log."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randperm(ITEMS, generator=generator) + 1
    return ids.view(-1, 500)


def main() -> None:
    """Walk over the interactions and collect the norm of each batch."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    catalogue = torch.randn(ITEMS, 64, device=device)
    popularity = torch.zeros(ITEMS, device=device)
    norms: list[float] = []
    for number, batch in enumerate(load_interactions()):
        item_ids = batch.to(device)
        norms.append(catalogue[item_ids].norm().item())
        if number % 20 == 0:
            print(f"batch {number}: mean norm {sum(norms) / len(norms):.3f}, seen {int(popularity.sum())}")
    print(f"{len(norms)} batches")


if __name__ == "__main__":
    main()
