"""A classifier of names whose depth comes from the configuration."""

import torch
from torch import nn

CONFIG = {"model": {"width": 64, "depth": 4, "classes": 18, "learn_input": False}, "optimizer": {"lr": 1e-3}}


class Recurrent(nn.Module):
    def __init__(self, width, depth, classes, learn_input):
        super().__init__()
        self.layers = [nn.Linear(width, width) for _ in range(depth)]
        self.layers.append(nn.Linear(width, classes))
        if learn_input:
            self.input = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def build(config):
    return Recurrent(**config["model"])


def make_optimizer(model, config):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, **config["optimizer"])


def train(config, steps):
    model = build(config)
    print("check", model(torch.rand(2, 64)).shape)
    optimizer = make_optimizer(model, config)
    for step in range(steps):
        loss = nn.functional.cross_entropy(model(torch.rand(8, 64)), torch.randint(0, 18, (8,)))
        loss.backward()
        optimizer.step()


train(CONFIG, 10)
