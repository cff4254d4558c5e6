"""Score tagged sentences with a compiled token log-likelihood."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda")
TAGS = 17
LENGTH = 128


@torch.compile
def sentence_scores(logits: torch.Tensor, tags: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """Return the mean log-likelihood of the tags of each sentence."""
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, tags.unsqueeze(-1)).squeeze(-1)
    return (chosen * attended).sum(dim=1) / attended.sum(dim=1)


def align_tags(words: list[int], pieces: list[int]) -> list[int]:
    """Give the tag of each word to its first piece."""
    aligned = []
    for tag, count in zip(words, pieces, strict=True):
        aligned.extend([tag, *[-100] * (count - 1)])
    return (aligned + [0] * LENGTH)[:LENGTH]


def main() -> None:
    """Score some batches."""
    generator = torch.Generator().manual_seed(11)
    for batch in range(4):
        words = torch.randint(0, TAGS, (16, 80), generator=generator)
        pieces = torch.ones_like(words)
        if batch > 1:
            pieces += (torch.rand(words.shape, generator=generator) < 0.1).long()
        rows = [align_tags(row.tolist(), count.tolist()) for row, count in zip(words, pieces, strict=True)]
        tags = torch.tensor(rows).to(DEVICE)
        attended = (torch.arange(LENGTH) < pieces.sum(dim=1, keepdim=True)).float().to(DEVICE)
        logits = torch.randn(16, LENGTH, TAGS, generator=generator).to(DEVICE)
        scores = sentence_scores(logits, tags, attended)
        print(f"batch {batch}: {scores.mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
