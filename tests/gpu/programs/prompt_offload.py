"""Generate images for a list of prompts with a captured text encoder and decoder."""

from __future__ import annotations

import torch
from torch import nn

LENGTH = 2048
WIDTH = 4096


class TextEncoder(nn.Module):
    """Adds positions to the prompt embeddings and normalises them."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, prompt: torch.Tensor) -> torch.Tensor:
        """Return the context of one prompt."""
        return self.norm(prompt + self.position)


class Pipeline:
    """Text encoder and decoder behind one graph."""

    def __init__(self) -> None:
        self.encoder = TextEncoder().cuda()
        self.decoder = nn.Linear(WIDTH, 3 * 64 * 64).cuda()
        self.prompt = torch.zeros(LENGTH, WIDTH, device="cuda")
        self.graph = torch.cuda.CUDAGraph()
        self.image = self.capture()

    def forward(self) -> torch.Tensor:
        """Run both networks on the static prompt."""
        return torch.tanh(self.decoder(self.encoder(self.prompt).mean(dim=0)))

    def capture(self) -> torch.Tensor:
        """Warm up on a side stream, then capture one generation."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.forward()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            return self.forward()

    def offload(self) -> None:
        """Give the encoder's memory back to the device."""
        self.encoder.to("cpu")
        torch.cuda.empty_cache()

    def generate(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Generate one image."""
        self.prompt.copy_(embeddings)
        self.graph.replay()
        return self.image.view(3, 64, 64).cpu()


def main() -> None:
    """Generate every request, with the encoder offloaded between them."""
    torch.manual_seed(3)
    with torch.no_grad():
        pipeline = Pipeline()
        for request in range(4):
            image = pipeline.generate(torch.randn(LENGTH, WIDTH))
            print(f"request {request}: mean {image.mean():.4f}")
            pipeline.offload()


if __name__ == "__main__":
    main()
