"""Capture a sentence encoder and replay it for every request."""

from __future__ import annotations

import torch
from torch import nn

BATCH = 32
LENGTH = 128
VOCABULARY = 8000
WIDTH = 256


class SentenceEncoder(nn.Module):
    """Embeds tokens and returns one centred vector per sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Encode a batch of token ids, 0 being the padding."""
        mask = tokens != 0
        hidden = torch.tanh(self.project(self.embed(tokens)))
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        centre = hidden[mask].mean(dim=0)
        return nn.functional.normalize(pooled - centre, dim=-1)


def capture(model: SentenceEncoder, tokens: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Warm the model up and capture one forward pass."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(tokens)
    return graph, output


def main() -> None:
    """Serve a few requests from the captured graph."""
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=generator).cuda()
    tokens[:, LENGTH // 2 :] = 0
    with torch.no_grad():
        model = SentenceEncoder().cuda().eval()
        graph, output = capture(model, tokens)
        for request in range(4):
            tokens.copy_(torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=generator))
            graph.replay()
            print(f"request {request}: {output.norm().item():.4f}")


if __name__ == "__main__":
    main()
