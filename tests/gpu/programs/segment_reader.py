"""Train a segment-wise document encoder with activation checkpointing."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = torch.device("cuda")
WIDTH = 256
SEGMENT = 256
MAX_TOKENS = 1024


class SegmentBlock(nn.Module):
    """Encode one segment after another, with positions that continue."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.position = nn.Embedding(MAX_TOKENS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.seen = 0

    def reset(self) -> None:
        """Start a new document."""
        self.seen = 0

    def forward(self, segment: torch.Tensor) -> torch.Tensor:
        """Encode the next segment."""
        positions = torch.arange(self.seen, self.seen + segment.shape[1], device=segment.device)
        self.seen += segment.shape[1]
        hidden = segment + self.position(positions)
        return hidden + self.mix(self.norm(hidden))


def main() -> None:
    """Train for some steps."""
    torch.manual_seed(1)
    block = SegmentBlock().to(DEVICE)
    head = nn.Linear(WIDTH, 2).to(DEVICE)
    optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.01)
    for step in range(5):
        document = torch.randn(8, MAX_TOKENS, WIDTH, device=DEVICE, requires_grad=True)
        block.reset()
        encoded = [checkpoint(block, part, use_reentrant=False) for part in document.split(SEGMENT, dim=1)]
        loss = head(torch.cat(encoded, dim=1).mean(dim=1)).logsumexp(dim=1).mean()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
