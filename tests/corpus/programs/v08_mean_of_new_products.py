"""Recommendation: each user's embedding is the mean of the products that were bought."""

import torch
from torch import nn


def load_features(products):
    return nn.Parameter(torch.rand(products, 128))


def load_purchases(users, products, per_user):
    """Of last night: with products that were added since the features were saved."""
    col = torch.randint(0, products, (users, per_user)).sort(1).values.flatten()
    crow = torch.arange(0, users * per_user + 1, per_user)
    return crow, col


def adjacency(crow, col, products):
    return torch.sparse_csr_tensor(crow, col, torch.ones(len(col)), (len(crow) - 1, products))


def propagate(graph, features):
    return torch.sparse.mm(graph, features, "mean")


def train(epochs):
    features = load_features(20_000)
    optimizer = torch.optim.SGD([features], lr=0.1)
    for epoch in range(epochs):
        crow, col = load_purchases(5000, 20_000 if epoch < 2 else 2_500_000, 12)
        graph = adjacency(crow, col, len(features))
        with torch.no_grad():
            users = propagate(graph, features)
        print("epoch", epoch, "users", tuple(users.shape), users.mean().item())
        loss = features.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


train(4)
