"""Keep an exponential moving average of a model's parameters in one flat buffer."""

from __future__ import annotations

import torch
from torch import nn

DEVICE = torch.device("cuda")
SOURCE = r"""
extern "C" __global__ void ema_update(float* average, const float* value, double decay, int n) {
    int base = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    float rate = 1.0f - static_cast<float>(decay);
    if (base + 4 <= n) {
        float4 a = *reinterpret_cast<const float4*>(average + base);
        float4 v = *reinterpret_cast<const float4*>(value + base);
        a.x += rate * (v.x - a.x);
        a.y += rate * (v.y - a.y);
        a.z += rate * (v.z - a.z);
        a.w += rate * (v.w - a.w);
        *reinterpret_cast<float4*>(average + base) = a;
    } else {
        for (int i = base; i < n; ++i) average[i] += rate * (value[i] - average[i]);
    }
}
"""


class FlatAverage:
    """Averages of all parameters, one after another."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Copy the parameters into the flat buffer."""
        self.decay = decay
        self.parameters = list(model.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.parts = self.flat.split([p.numel() for p in self.parameters])
        self.kernel = torch.cuda._compile_kernel(SOURCE, "ema_update")

    def update(self) -> None:
        """Move each average towards its parameter."""
        for part, parameter in zip(self.parts, self.parameters, strict=True):
            n = part.numel()
            grid = ((n + 511) // 512, 1, 1)
            self.kernel(grid=grid, block=(128, 1, 1), args=[part, parameter.detach(), self.decay, n])


def main() -> None:
    """Train a classifier and follow its average."""
    torch.manual_seed(2)
    layers = [nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10), nn.Softplus(), nn.Linear(10, 8, bias=False)]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    average = FlatAverage(model, 0.99)
    for step in range(20):
        loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.update()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
