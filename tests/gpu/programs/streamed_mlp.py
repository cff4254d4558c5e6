"""Run a deep network whose blocks are streamed to the GPU one at a time."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda")
WIDTH = 512
DEPTH = 6


class StreamedBlock:
    """A block whose gain and weight share one flat storage."""

    def __init__(self) -> None:
        """Create the parameters on the host and empty storage on the GPU."""
        weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
        self.host = torch.cat([torch.ones(WIDTH), weight.reshape(-1)])
        self.flat = torch.empty_like(self.host, device=DEVICE)
        self.gain = self.flat[:WIDTH]
        self.weight = self.flat[WIDTH:].view(WIDTH, WIDTH)
        self.unload()

    def load(self) -> None:
        """Bring the parameters to the GPU."""
        self.flat.untyped_storage().resize_(self.host.numel() * self.host.element_size())
        self.flat.copy_(self.host)

    def unload(self) -> None:
        """Give the GPU memory back."""
        self.flat.untyped_storage().resize_(0)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the block."""
        self.load()
        hidden = hidden + torch.tanh(hidden * self.gain @ self.weight)
        self.unload()
        return hidden


class StreamedNetwork:
    """Blocks with an output gain shared with the first of them."""

    def __init__(self, tie_output: bool) -> None:
        """Build the blocks."""
        self.blocks = [StreamedBlock() for _ in range(DEPTH)]
        self.output_gain = self.blocks[0].gain if tie_output else torch.ones(WIDTH, device=DEVICE)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the scaled output."""
        for block in self.blocks:
            hidden = block(hidden)
        return hidden * self.output_gain


def main() -> None:
    """Compare the network without and with a tied output gain."""
    torch.manual_seed(10)
    batch = torch.randn(256, WIDTH, device=DEVICE)
    for tie_output in (False, True):
        network = StreamedNetwork(tie_output)
        output = network(batch)
        print(f"tied {tie_output}: {output.square().mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
