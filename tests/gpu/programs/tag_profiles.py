"""Train item profiles from bags of tags."""

from __future__ import annotations

import random

import torch
from torch import nn

TAGS = 5000
WIDTH = 96
BAGS = 256


class TagProfile(nn.Module):
    """Mean of an item's tag vectors, followed by a score."""

    def __init__(self) -> None:
        super().__init__()
        self.tags = nn.EmbeddingBag(TAGS, WIDTH, mode="mean")
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, tags: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Return one score per item."""
        profile = self.tags(tags, offsets)
        if torch.isnan(profile).any():
            profile = torch.nan_to_num(profile)
        return self.score(profile).squeeze(1)


def collate(items: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Flatten the tags of several items for an embedding bag."""
    tags = torch.tensor([tag for item in items for tag in item])
    offsets = torch.tensor([len(item) for item in items])
    return tags.cuda(), offsets.cuda()


def main() -> None:
    """Train on random items."""
    torch.manual_seed(31)
    source = random.Random(31)
    model = TagProfile().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(20):
        items = [[source.randrange(TAGS) for _ in range(source.randint(1, 12))] for _ in range(BAGS)]
        target = torch.tensor([float(len(item) > 6) for item in items], device="cuda")
        loss = nn.functional.binary_cross_entropy_with_logits(model(*collate(items)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
