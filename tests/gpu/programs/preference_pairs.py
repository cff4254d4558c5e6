"""Preference training of a small language model on chosen and rejected answers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 512
WIDTH = 128
PAIRS = 8
LENGTH = 48
PROMPT = 16
IGNORE = -100
BETA = 0.1


def build() -> nn.Module:
    """Return a language model without attention."""
    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, VOCABULARY)
    )


def answer_logps(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the log probability of each answer."""
    logits, labels = logits[:, :-1], labels[:, 1:]
    mask = labels != IGNORE
    token_logps = torch.gather(logits.log_softmax(dim=-1), 2, labels.unsqueeze(2)).squeeze(2)
    if torch.isnan(token_logps * mask).any():
        raise FloatingPointError("log probability is not a number")
    return (token_logps * mask).sum(dim=1)


def make_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return chosen answers followed by rejected ones, and their labels."""
    tokens = torch.randint(0, VOCABULARY, (2 * PAIRS, LENGTH))
    labels = tokens.clone()
    labels[:, :PROMPT] = IGNORE
    return tokens.cuda(), labels.cuda()


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(37)
    model = build().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(10):
        tokens, labels = make_pairs()
        chosen, rejected = answer_logps(model(tokens), labels).chunk(2)
        loss = -F.logsigmoid(BETA * (chosen - rejected)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
