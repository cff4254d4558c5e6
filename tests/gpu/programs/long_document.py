"""Scores all pairs of tokens of a long document."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Plain multi-head attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def split(self, tokens: Tensor) -> Tensor:
        """Move the heads in front of the tokens."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Attend over all tokens."""
        query, key, value = (self.split(layer(tokens)) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1)
        return (weights @ value).transpose(1, 2).flatten(2)


@torch.no_grad()
def main() -> None:
    """Run the attention over documents of growing length."""
    torch.manual_seed(0)
    attention = SelfAttention(256, 8).cuda()
    for length in (512, 4096, 120_000):
        tokens = torch.randn(1, length, 256, device="cuda")
        print(length, attention(tokens).norm().item())


if __name__ == "__main__":
    main()
