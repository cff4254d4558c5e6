"""Draw negative items for a recommender's users."""

from __future__ import annotations

import torch

USERS = 128
ITEMS = 2000
NEGATIVES = 8


def interaction_matrix() -> torch.Tensor:
    """Return how often each user saw each item, on the host."""
    generator = torch.Generator().manual_seed(3)
    seen = torch.poisson(torch.full((USERS, ITEMS), 0.4), generator=generator)
    seen[97] = seen[97].clamp(min=1.0)
    return seen


def candidate_weights(seen: torch.Tensor, popularity: torch.Tensor) -> torch.Tensor:
    """Weigh the items that a user has not seen by their popularity."""
    unseen = (seen == 0).to(popularity.dtype)
    return unseen * popularity


def draw_negatives(weights: torch.Tensor) -> torch.Tensor:
    """Draw items for every user."""
    return torch.multinomial(weights, NEGATIVES, replacement=True)


def pair_up(negatives: torch.Tensor, users: list[str]) -> dict[str, list[int]]:
    """Return the drawn items by the user's name."""
    names = [name.strip().lower() for name in users]
    rows = negatives.tolist()
    return dict(zip(names, rows, strict=True))


def main() -> None:
    """Prepare one epoch of negatives."""
    torch.manual_seed(0)
    users = [f"User {number:04d}" for number in range(USERS)]
    seen = interaction_matrix().cuda()
    popularity = (seen.sum(dim=0) + 1.0).pow(0.75)
    weights = candidate_weights(seen, popularity)
    negatives = draw_negatives(weights)
    pairs = pair_up(negatives, users)
    print(len(pairs), pairs["user 0000"])


if __name__ == "__main__":
    main()
