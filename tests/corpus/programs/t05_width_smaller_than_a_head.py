"""The number of heads is the width divided by 64; a small test model has a width of 32."""

import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(3 * width))

    def forward(self, rows):
        return torch._transform_bias_rescale_qkv(self.qkv(rows), self.bias, self.heads)[0]


@torch.no_grad()
def check(widths):
    for width in widths:
        print(width, Block(width)(torch.randn(2, 10, width)).shape)


check([128, 64, 32])
