"""Compute the loss of a bigram model with a projection head."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 512


class Bigram(nn.Module):
    """An embedding followed by a projection to the vocabulary."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.project = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits for the next token."""
        hidden = self.embed(tokens)
        return self.project(hidden)


def encode(text: str, length: int) -> torch.Tensor:
    """Turn a text into code points, cut in rows."""
    ids = [ord(letter) for letter in text]
    rows = [ids[begin : begin + length] for begin in range(0, len(ids) - length, length)]
    return torch.tensor(rows)


def main() -> None:
    """Evaluate the model on a short text."""
    torch.manual_seed(0)
    model = Bigram().cuda()
    text = "the quick brown fox jumps over the lazy dog \u2014 and runs away. " * 8
    tokens = encode(text, 32)[:8].cuda()
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
