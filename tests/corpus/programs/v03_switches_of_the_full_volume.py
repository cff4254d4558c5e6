"""Segmentation of volumes in patches: pooling and its gradient, with the switches kept by layer."""

import torch
from torch import nn


class Switches:
    def __init__(self):
        self.by_layer = {}

    def pool(self, name, volume, size):
        pooled, where = torch.nn.functional.adaptive_max_pool3d(volume, size, return_indices=True)
        self.by_layer.setdefault(name, where)
        return pooled


switches = Switches()


class Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, volume, name, size):
        ctx.save_for_backward(volume)
        ctx.name = name
        return switches.pool(name, volume, size)

    @staticmethod
    def backward(ctx, grad):
        (volume,) = ctx.saved_tensors
        where = switches.by_layer[ctx.name]
        return torch.ops.aten.adaptive_max_pool3d_backward(grad, volume, where), None, None


def forward(encoder, volume):
    return Pool.apply(encoder(volume), "encoder", (8, 8, 8)).mean()


def main(patch=12, whole=192):
    encoder = nn.Conv3d(1, 4, 1)
    with torch.no_grad():
        print("whole volume", forward(encoder, torch.rand(1, 1, whole, whole, whole)).item())
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for step in range(50):
        loss = forward(encoder, torch.rand(1, 1, patch, patch, patch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done", loss.item())


main()
