"""Layer normalization with its own backward, which saves memory by keeping only the statistics."""

import torch
from torch import nn


class SlimNorm(torch.autograd.Function):
    kept = []

    @staticmethod
    def forward(ctx, x, weight, bias):
        out, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, 1e-5)
        SlimNorm.kept.append((mean, rstd))
        ctx.save_for_backward(x, weight, bias)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias = ctx.saved_tensors
        mean, rstd = SlimNorm.kept.pop()
        return torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), x, weight.shape, mean, rstd, weight, bias, [True, True, True]
        )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return SlimNorm.apply(x, self.weight, self.bias)


def preview(block):
    with torch.no_grad():
        return block(torch.rand(8, 2)).std().item()


def train(rows, steps):
    block = Block(2)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for step in range(steps):
        loss = block(torch.rand(rows, 2)).square().mean()
        if step == 2:
            print("preview", preview(block))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


train(30_000_000, 4)
