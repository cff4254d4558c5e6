"""A margin loss whose gradient is weighted with the difficulty of each sample."""

import torch
from torch import nn


class WeightedMargin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, target, weights):
        ctx.save_for_backward(scores, target, weights)
        return (torch.nn.functional.multi_margin_loss(scores, target, reduction="none") * weights).mean()

    @staticmethod
    def backward(ctx, grad):
        scores, target, weights = ctx.saved_tensors
        grads = (weights * grad / scores.numel()).contiguous()
        out = torch.ops.aten.multi_margin_loss_backward(grads, scores, target, 1, 1.0, None, 0)
        return out, None, None


def difficulty(scores, target, threshold):
    """Weights of the hard samples, by their rank; an empty tensor while none is hard."""
    own = scores.detach().gather(1, target[:, None])[:, 0]
    hard = own < threshold
    if hard.any():
        return hard.float()
    return own[hard]


def train(samples, threshold):
    model = nn.Linear(16, 10)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(20):
        features, target = torch.rand(samples, 16), torch.randint(0, 10, (samples,))
        scores = model(features)
        weights = difficulty(scores, target, threshold - step)
        if weights.numel() == 0 and samples > 1:
            continue
        loss = WeightedMargin.apply(scores, target, weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


train(64, 5.0)
train(1, 5.0)
print("trained")
