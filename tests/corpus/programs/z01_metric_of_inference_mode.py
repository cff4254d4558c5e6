"""A metric is first updated below inference_mode(), in the check before training, and then in the training loop."""

import torch
from torch import nn


class MeanMetric(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.count = 0

    def reset(self):
        self.total = torch.zeros_like(self.total)

    def update(self, value):
        self.total += value
        self.count += 1


metric, model = MeanMetric(), nn.Linear(4, 1)


def validate():
    with torch.inference_mode():
        metric.reset()
        metric.update(model(torch.randn(8, 4)).mean())


def train():
    for _ in range(3):
        loss = model(torch.randn(8, 4)).mean()
        loss.backward()
        metric.update(loss.detach())


validate()
train()
