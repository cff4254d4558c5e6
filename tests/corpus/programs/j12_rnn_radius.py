import math

import torch
from torch import nn


class NextStep(nn.Module):
    def __init__(self, inputs=3, hidden=32):
        super().__init__()
        self.rnn = nn.RNN(inputs, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, inputs)

    def forward(self, x):
        hidden, _ = self.rnn(x)
        return self.out(hidden)


def lorenz(steps, dt=0.02):
    x, y, z = 1.0, 1.0, 1.0
    points = []
    for _ in range(steps):
        dx, dy, dz = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
        x, y, z = x + dt * dx, y + dt * dy, z + dt * dz
        points.append((x, y, z))
    return torch.tensor(points)


def batches(series, length=60, size=16):
    windows = series.unfold(0, length + 1, 7).transpose(1, 2)
    for chunk in windows[torch.randperm(len(windows))].split(size):
        yield chunk[:, :-1], chunk[:, 1:]


@torch.no_grad()
def spectral_radius(model):
    return torch.linalg.eigvals(model.rnn.weight_hh_l0).abs().max().item()


def train(epochs=8, lr=0.02):
    series = lorenz(1500)
    model = NextStep()
    optim = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optim, lambda e: math.pow(0.1, 4 - min(e, 4)))
    history = []
    for epoch in range(epochs):
        total, count = 0.0, 0
        for x, target in batches(series):
            loss = nn.functional.mse_loss(model(x), target)
            optim.zero_grad()
            loss.backward()
            optim.step()
            total, count = total + loss.item(), count + 1
        schedule.step()
        history.append((total / count, spectral_radius(model)))
        print("epoch %d mse %.4f radius %.3f" % (epoch, *history[-1]), flush=True)
    return history


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
