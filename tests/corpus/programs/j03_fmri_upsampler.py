import torch
import torch.nn as nn


class ConvTransposeNd(nn.Module):
    """Transposed convolution over any number of spatial axes (torch.nn stops at three)."""

    def __init__(self, ndim, in_channels, out_channels, kernel_size=2, stride=2, groups=1):
        super().__init__()
        self.ndim, self.stride, self.groups = ndim, stride, groups
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels // groups, *([kernel_size] * ndim)))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.kaiming_uniform_(self.weight, a=5 ** 0.5)

    def forward(self, x):
        n = self.ndim
        return torch.convolution(x, self.weight, self.bias, [self.stride] * n, [0] * n, [1] * n,
                                 True, [0] * n, self.groups)


class Upsampler(nn.Module):
    def __init__(self, ndim, channels=8):
        super().__init__()
        self.lift = nn.Linear(1, channels)
        self.up = ConvTransposeNd(ndim, channels, channels, groups=channels)
        self.out = nn.Linear(channels, 1)

    def forward(self, volume):
        x = self.lift(volume.unsqueeze(-1)).movedim(-1, 1)
        x = torch.relu(self.up(x))
        return self.out(x.movedim(1, -1)).squeeze(-1)


def make_run(ndim, size=4):
    low = torch.randn(1, *([size] * ndim))
    high = low
    for axis in range(1, ndim + 1):
        high = high.repeat_interleave(2, dim=axis)
    return low, high


def fit(ndim, steps=5):
    model = Upsampler(ndim)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        low, high = make_run(ndim)
        loss = nn.functional.mse_loss(model(low), high)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    for name, ndim in [("time course", 1), ("slice", 2), ("volume", 3), ("volume over time", 4)]:
        print(f"fitting {name} model", flush=True)
        print(f"  {name}: mse {fit(ndim):.4f}", flush=True)


if __name__ == "__main__":
    main()
