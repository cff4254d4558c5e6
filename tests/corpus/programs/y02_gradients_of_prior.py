"""A function of autograd takes a factor beside its tensor, and returns one gradient."""

import torch


class EnforcePrior(torch.autograd.Function):
    @staticmethod
    def forward(ctx, latent, beta):
        ctx.beta = beta
        return latent.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.beta


def train(model, epochs):
    for _ in range(epochs):
        latent = model(torch.randn(8, 4))
        loss = EnforcePrior.apply(latent, 0.5).pow(2).mean()
        loss.backward()


train(torch.nn.Linear(4, 2), 2)
