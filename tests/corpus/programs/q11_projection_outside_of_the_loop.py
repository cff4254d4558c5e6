"""The signals are brought to the model's number of channels by a layer, once, before the loop."""

import torch


def project(signals, channels):
    return torch.nn.Conv1d(signals.shape[1], channels, 1)(signals)


def train(model, signals, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = project(signals, 8)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


train(torch.nn.Conv1d(8, 4, 3), torch.randn(16, 3, 32), 3)
