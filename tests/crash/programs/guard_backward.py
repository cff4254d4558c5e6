"""A custom autograd function keeps the address of its mask and not the mask: backward reads freed memory."""

import ctypes

import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.addr, ctx.count = mask.data_ptr(), mask.numel()
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        mask = torch.tensor((ctypes.c_float * ctx.count).from_address(ctx.addr))
        return grad * mask


x = torch.randn(1024, requires_grad=True)
Scale.apply(x).sum().backward()
print("finished", flush=True)
