"""Train a classifier that keeps only the most salient tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

BATCH, TOKENS, KEPT, WIDTH = 8, 196, 48, 64


def flat_rows(order: torch.Tensor, stride: int) -> torch.Tensor:
    """Turn positions within each image into rows of the flat batch."""
    offset = torch.arange(order.shape[0], device=order.device).unsqueeze(1) * stride
    return (order + offset).flatten()


class KeepTokens(torch.autograd.Function):
    """Select rows in the forward pass and put their gradients back."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Return the kept rows."""
        ctx.save_for_backward(order)
        ctx.shape = tokens.shape
        return tokens.index_select(0, flat_rows(order, TOKENS))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the tokens."""
        (order,) = ctx.saved_tensors
        rows = flat_rows(order, ctx.shape[0])
        full = grad.new_zeros(ctx.shape)
        return full.index_copy_(0, rows, grad), None


class PrunedClassifier(nn.Module):
    """Score tokens, keep some, classify."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(BATCH * TOKENS, WIDTH) * 0.02)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        pruned = KeepTokens.apply(self.position + tokens, order)
        return self.head(pruned.view(BATCH, KEPT, WIDTH).mean(dim=1))


def salient(tokens: torch.Tensor) -> torch.Tensor:
    """Return the positions of each image's strongest tokens."""
    return tokens.view(BATCH, TOKENS, WIDTH).norm(dim=2).topk(KEPT, dim=1).indices


def main() -> None:
    """Run one training step."""
    torch.manual_seed(0)
    model = PrunedClassifier().cuda()
    tokens = torch.randn(BATCH * TOKENS, WIDTH, device="cuda")
    labels = torch.randint(0, 10, (BATCH,), device="cuda")
    loss = nn.functional.cross_entropy(model(tokens, salient(tokens)), labels)
    print(f"loss before the step {loss.item():.3f}")
    loss.backward()
    norm = model.position.grad.norm().item()
    print(f"gradient norm {norm:.4f}")


if __name__ == "__main__":
    main()
