"""Trains with a clipping layer whose backward pass is native code."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn


class NativeClip(torch.autograd.Function):
    """Passes values on and clips their gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bound: float) -> Tensor:
        """Keep the bound for the backward pass."""
        ctx.bound = bound
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Clip a copy of the gradient."""
        grad = grads[0].contiguous()
        scratch = torch.empty(grad.shape, dtype=grad.dtype)
        ctypes.memmove(scratch.data_ptr(), grad.data_ptr(), grad.nbytes)
        return scratch.clamp(-ctx.bound, ctx.bound).to(grad.device), None


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Linear(64, 32).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        inputs = torch.randn(128, 64, device="cuda")
        loss = NativeClip.apply(model(inputs), 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", loss.item())


if __name__ == "__main__":
    main()
