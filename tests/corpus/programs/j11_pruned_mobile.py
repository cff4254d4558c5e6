import warnings

import torch
import torch.ao.nn.quantized.functional as qF
from torch import nn

warnings.filterwarnings("ignore", message=".*quantized tensor creation.*")
torch.backends.quantized.engine = "qnnpack"


class SeparableBlock(nn.Module):
    def __init__(self, channels, out_channels, kernel=3):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, out_channels, 1)

    def forward(self, x):
        return self.pointwise(torch.relu(self.depthwise(x)))


def prune_filters(conv, keep_ratio=0.75):
    strength = conv.weight.detach().abs().flatten(1).sum(1)
    keep = strength.topk(int(len(strength) * keep_ratio)).indices.sort().values
    conv.weight = nn.Parameter(conv.weight.detach()[keep])
    conv.bias = nn.Parameter(conv.bias.detach()[keep])
    conv.out_channels = len(keep)
    return keep


def prune_inputs(conv, keep):
    conv.weight = nn.Parameter(conv.weight.detach()[:, keep])
    conv.in_channels = len(keep)


class QuantConv:
    def __init__(self, conv):
        w = conv.weight.detach()
        scale = float(w.abs().max() / 127)
        self.weight = torch.quantize_per_tensor(w, scale, 0, torch.qint8)
        self.bias = conv.bias.detach()
        self.args = dict(stride=conv.stride, padding=conv.padding, dilation=conv.dilation, groups=conv.groups)

    def __call__(self, xq, scale=0.05, zero_point=128):
        return qF.conv2d(xq, self.weight, self.bias, scale=scale, zero_point=zero_point, **self.args)


def export_block(block):
    keep = prune_filters(block.depthwise)
    prune_inputs(block.pointwise, keep)
    print("kept", len(keep), "depthwise filters", tuple(block.depthwise.weight.shape), flush=True)
    return QuantConv(block.depthwise), QuantConv(block.pointwise)


def main():
    torch.manual_seed(0)
    block = SeparableBlock(8, 16)
    images = torch.rand(2, 8, 32, 32)
    print("float output", tuple(block(images).shape), flush=True)

    depthwise, pointwise = export_block(block)
    xq = torch.quantize_per_tensor(images, 1 / 255, 0, torch.quint8)
    hidden = depthwise(xq)
    out = pointwise(hidden)
    print("quantized output", tuple(out.shape), float(out.dequantize().mean()))


if __name__ == "__main__":
    main()
