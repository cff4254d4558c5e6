"""Build an int8 backbone for the edge box from a stage table and time it."""
import time

import torch
import torch.ao.nn.quantized as nnq
import torch.nn as nn

STAGES = [
    # out_channels, resolution of the stage's output
    (16, 112),
    (32, 56),
    (64, 28),
    (96, 30),
]


class QuantBackbone(nn.Module):
    def __init__(self, stages, input_size=224, in_channels=3):
        super().__init__()
        layers = []
        size, channels = input_size, in_channels
        for width, resolution in stages:
            layers.append(self.make_stage(channels, width, size, resolution))
            size, channels = resolution, width
        self.layers = nn.Sequential(*layers)

    @staticmethod
    def make_stage(channels, width, size, resolution):
        stride = size // resolution
        conv = nnq.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1)
        conv.scale, conv.zero_point = 0.05, 64
        return nn.Sequential(conv, nn.ReLU())

    def forward(self, x):
        return self.layers(x)


def benchmark(model, runs=5):
    x = torch.quantize_per_tensor(torch.rand(1, 3, 224, 224), 0.01, 0, torch.quint8)
    start = time.perf_counter()
    for _ in range(runs):
        y = model(x)
    return y.shape, (time.perf_counter() - start) / runs


def main():
    torch.backends.quantized.engine = "fbgemm"
    for depth in range(1, len(STAGES) + 1):
        model = QuantBackbone(STAGES[:depth])
        shape, seconds = benchmark(model)
        print(f"{depth} stages -> {tuple(shape)} {1000 * seconds:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
