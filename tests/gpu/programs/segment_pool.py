"""Pool token vectors of packed documents."""

from __future__ import annotations

import torch

WIDTH = 64


def pack(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the packed vectors and the boundaries of the documents."""
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(sum(lengths), WIDTH, generator=generator)
    boundaries = torch.tensor(lengths).cumsum(0)
    return vectors, boundaries


def pool(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the sum of the vectors of each document."""
    return torch.segment_reduce(vectors, "sum", lengths=lengths, axis=0, unsafe=True)


def main() -> None:
    """Pool one packed batch."""
    documents = [128 + (number * 37) % 256 for number in range(2000)]
    vectors, boundaries = pack(documents)
    pooled = pool(vectors.cuda(), boundaries.cuda())
    norms = pooled.norm(dim=1).tolist()
    print(f"{len(norms)} documents, longest vector {max(norms):.3f}")


if __name__ == "__main__":
    main()
