"""The criterion returns a loss for each scale in one version of the library, and their sum in another."""

import torch
from torch import nn


class EdgeLoss(nn.Module):
    def forward(self, outputs, target):
        return tuple(nn.functional.mse_loss(output, target) for output in outputs)


class Trainer:
    def __init__(self):
        self.model, self.criterion = nn.Linear(4, 4), EdgeLoss()

    def training(self, batches):
        for _ in range(batches):
            outputs = self.model(torch.randn(8, 4)), self.model(torch.randn(8, 4))
            loss = self.criterion(outputs, torch.zeros(8, 4))
            loss.backward()


Trainer().training(3)
