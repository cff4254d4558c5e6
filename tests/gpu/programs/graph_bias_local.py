"""Captures an attention-free mixer once and replays it for every request."""

from __future__ import annotations

import torch
from torch import Tensor

TOKENS = 64
WIDTH = 4096


def distance_bias(width: int, rate: float) -> Tensor:
    """Return the decay of the mixing weight with the distance."""
    position = torch.arange(width, device="cuda", dtype=torch.float32)
    return torch.exp(-rate * (position[:, None] - position[None, :]).abs())


def capture(static_tokens: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Record the mixing of the tokens."""
    mixing = distance_bias(WIDTH, 0.05)
    static_tokens @ mixing
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mixed = static_tokens @ mixing
    return graph, mixed


def main() -> None:
    """Serve some requests and compare the last one with the eager result."""
    torch.manual_seed(0)
    static_tokens = torch.zeros(TOKENS, WIDTH, device="cuda")
    graph, mixed = capture(static_tokens)
    history = [torch.randn(WIDTH, WIDTH, device="cuda") for _ in range(4)]
    request = history[0][:TOKENS].contiguous()
    static_tokens.copy_(request)
    graph.replay()
    served = mixed.clone()
    eager = request @ distance_bias(WIDTH, 0.05)
    error = (served - eager).abs().max().item()
    if error > 0.5:
        raise RuntimeError(f"replayed output differs from the eager one by {error:.3f}")
    print("largest difference", error)


if __name__ == "__main__":
    main()
