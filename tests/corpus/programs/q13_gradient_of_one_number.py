"""The losses of three angles are sent back with gradients that were made for an older release."""

import torch


class Angles(torch.nn.Module):
    def __init__(self, bins=66):
        super().__init__()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(16, bins) for _ in range(3))

    def forward(self, features):
        return [head(features) for head in self.heads]


def train(model, batches):
    criterion = torch.nn.CrossEntropyLoss()
    for features, angles in batches:
        losses = [criterion(scores, angle) for scores, angle in zip(model(features), angles, strict=True)]
        gradients = [torch.ones(1) for _ in range(len(losses))]
        torch.autograd.backward(losses, gradients)


train(Angles(), [(torch.randn(4, 16), torch.randint(0, 66, (3, 4))) for _ in range(2)])
