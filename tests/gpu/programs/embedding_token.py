"""Score prompts with a small transformer language model."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 32_000
SPECIAL = {"<pad>": 0, "<s>": 1, "</s>": 2, "<tool>": 32_000}


class Scorer(nn.Module):
    """A two-layer encoder with a language-model head."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 512, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last position."""
        return self.head(self.encoder(self.embed(tokens))[:, -1])


def tokenize(prompts: list[str]) -> torch.Tensor:
    """Turn prompts into padded token ids."""
    rows = []
    for prompt in prompts:
        ids = [SPECIAL["<s>"]]
        ids += [SPECIAL.get(word, 3 + sum(map(ord, word)) % (VOCABULARY - 3)) for word in prompt.split()]
        rows.append(ids[:24] + [SPECIAL["<pad>"]] * (24 - len(ids)))
    return torch.tensor(rows)


def main() -> None:
    """Score a batch of prompts."""
    torch.manual_seed(0)
    model = Scorer().cuda()
    prompts = ["the weather in Oslo", "<tool> search weather Oslo", "write a poem about rain", "add two and two"] * 8
    tokens = tokenize(prompts).cuda()
    logits = model(tokens)
    best = logits.argmax(-1).tolist()
    print(best)


if __name__ == "__main__":
    main()
