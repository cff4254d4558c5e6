"""Run a compiled embedding with a scale and a normalization."""

from __future__ import annotations

import torch
import torch.nn.functional as F

VOCABULARY = 5_000
WIDTH = 128


@torch.compile(dynamic=False)
def embed(tokens: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return scaled token vectors plus position vectors."""
    return F.embedding(tokens, table) * WIDTH**0.5 + positions


def batch(step: int) -> torch.Tensor:
    """Return the tokens of one step; images are marked with a placeholder id."""
    tokens = torch.arange(16 * 64).view(16, 64) * (step + 3) % VOCABULARY
    if step == 2:
        tokens[:, 5:9] = 151_655
    return tokens


def main() -> None:
    """Embed a few batches."""
    torch.manual_seed(0)
    table = torch.randn(VOCABULARY, WIDTH, device="cuda")
    positions = torch.randn(64, WIDTH, device="cuda")
    for step in range(4):
        tokens = batch(step).cuda()
        vectors = embed(tokens, table, positions)
        mean = vectors.cpu().mean().item()
        print(f"step {step}: mean {mean:.4f}")


if __name__ == "__main__":
    main()
