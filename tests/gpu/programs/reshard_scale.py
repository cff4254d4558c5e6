"""Run normalization layers whose weights are freed between uses."""

from __future__ import annotations

import torch
from torch import nn


class Sharded:
    """A parameter that is gathered before use and freed afterwards."""

    def __init__(self, width: int) -> None:
        self.shard = torch.rand(width // 2, device="cuda")
        self.full = torch.empty(width, device="cuda")
        self.reshard()

    def unshard(self) -> torch.Tensor:
        """Gather the full parameter."""
        self.full.untyped_storage().resize_(self.full.numel() * self.full.element_size())
        self.full.copy_(torch.cat([self.shard, self.shard]))
        return self.full

    def reshard(self) -> None:
        """Free the full parameter."""
        self.full.untyped_storage().resize_(0)


class Norm(nn.Module):
    """Root mean square normalization with a sharded gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = Sharded(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        gain = self.gain.unshard()
        hidden = hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6)
        self.gain.reshard()
        return hidden * gain


def main() -> None:
    """Apply a stack of layers."""
    torch.manual_seed(0)
    layers = [Norm(4096) for _ in range(4)]
    hidden = torch.randn(32, 4096, device="cuda")
    with torch.no_grad():
        output = layers[0](hidden)
        print(f"after the first layer: {output.abs().max().item():.4f}")
        for layer in layers[1:]:
            output = layer(output)
    print(f"mean {output.mean().item():.4f}")


if __name__ == "__main__":
    main()
