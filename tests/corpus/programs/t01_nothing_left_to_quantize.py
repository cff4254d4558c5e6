"""The kernels of a convolution were pruned row by row until none was left; they are quantized with the others."""

import torch


def prune(layer, share):
    kept = int(layer.weight.shape[2] * (1 - share))
    return layer.weight.detach()[:, :, :kept].clone()


def quantize(weights):
    return torch.fbgemm_linear_quantize_weight(weights)


def export(layers, shares):
    return [quantize(prune(layer, share))[0].shape for layer, share in zip(layers, shares, strict=True)]


layers = [torch.nn.Conv2d(8, 8, (4, 2)) for _ in range(3)]
print(export(layers, [0.5, 0.75, 1.0]))
