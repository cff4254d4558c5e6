"""Score click batches on a side stream while the next batch is fingerprinted."""

from __future__ import annotations

import time

import numpy as np
import torch

BATCH, HIDDEN, BUCKETS, WIDTH, LAYERS = 8192, 8192, 100_000, 64, 16


class Scorer:
    """A wide tower and a hashed embedding table."""

    def __init__(self) -> None:
        self.weight = torch.randn(HIDDEN, HIDDEN, device="cuda") / HIDDEN**0.5
        self.table = torch.randn(BUCKETS, WIDTH, device="cuda")
        self.side = torch.cuda.Stream()

    def tower(self, dense: torch.Tensor) -> torch.Tensor:
        """Return the context features."""
        for _ in range(LAYERS):
            dense = torch.tanh(dense @ self.weight)
        return dense[:, :WIDTH].clone()

    def score(self, raw: torch.Tensor, dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Enqueue the scoring of one batch on the side stream."""
        ids = raw % BUCKETS
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            context = self.tower(dense)
            rows = self.table[ids]
        return context, rows


def fingerprint(raw: torch.Tensor) -> torch.Tensor:
    """Return the keys under which a batch is stored."""
    return raw * 2_654_435_761


@torch.no_grad()
def main() -> None:
    """Score two batches; the first one warms up."""
    torch.manual_seed(0)
    scorer = Scorer()
    dense = torch.randn(BATCH, HIDDEN, device="cuda")
    values = np.random.default_rng(5).integers(1 << 20, 1 << 31, size=(2, BATCH))
    clicks = [torch.from_numpy(batch).cuda() for batch in values]
    scorer.score(clicks[0], dense)
    torch.cuda.synchronize()
    keys = fingerprint(clicks[0])
    torch.cuda.synchronize()
    start = time.perf_counter()
    context, rows = scorer.score(clicks[1], dense)
    keys = fingerprint(clicks[1])
    scorer.side.synchronize()
    print(f"{time.perf_counter() - start:.3f} s", context.shape, rows.shape, keys.shape)


if __name__ == "__main__":
    main()
