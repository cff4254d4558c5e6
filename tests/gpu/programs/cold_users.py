"""Recommend items to users from the items they have opened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

ITEMS, WIDTH, BATCH = 100_000, 128, 256


@dataclass
class Opened:
    """Edges between users and items."""

    user: torch.Tensor
    item: torch.Tensor

    def of(self, first: int, last: int) -> Opened:
        """Return the edges of the users from `first` up to `last`."""
        chosen = (self.user >= first) & (self.user < last)
        return Opened(self.user[chosen], self.item[chosen])


class Tower(nn.Module):
    """Item features to item vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 1024), nn.ReLU(inplace=True),
            nn.Linear(1024, WIDTH),
        )  # fmt: skip

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return one vector for each item."""
        return self.layers(features)


@torch.no_grad()
def recommend(tower: Tower, features: torch.Tensor, edges: Opened, users: int) -> torch.Tensor:
    """Return the ten best items of each user of a batch."""
    user, item = edges.user.cuda(), edges.item.cuda()
    vectors = tower(features)
    taste = torch.zeros(users, WIDTH, device="cuda")
    taste.index_add_(0, user, vectors.index_select(0, item))
    best = (taste @ vectors.T).topk(10).indices
    return best.cpu()


def main() -> None:
    """Recommend for all users, batch by batch."""
    torch.manual_seed(5)
    population = 1024
    opened = Opened(torch.arange(population).repeat_interleave(64), torch.randint(0, ITEMS, (population * 64,)))
    tower = Tower().cuda()
    features = torch.randn(ITEMS, WIDTH, device="cuda")
    lists = []
    for first in range(0, population, BATCH):
        edges = opened.of(first, first + BATCH)
        lists.append(recommend(tower, features, edges, BATCH))
    print(torch.cat(lists).shape)


if __name__ == "__main__":
    main()
