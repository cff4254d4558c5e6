"""The gradient of a pooled clip is computed by hand, with the features of another, longer clip."""

import torch


class Pooled:
    def __init__(self, frames, side):
        self.size = (frames, side, side)
        self.features = None

    def forward(self, features):
        if self.features is None:
            self.features = features
        return torch.nn.functional.adaptive_avg_pool3d(features, self.size)

    def backward(self, grad):
        return torch.ops.aten._adaptive_avg_pool3d_backward(grad, self.features)


def check(pooled, clips):
    for clip in clips:
        output = pooled.forward(clip)
        print(output.shape, pooled.backward(torch.ones_like(output)).sum())


check(Pooled(4, 7), [torch.randn(64, 2048, 4, 7, 7), torch.randn(1, 64, 4, 7, 7)])
