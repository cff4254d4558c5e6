import torch
import torch.nn as nn


class ClickModel(nn.Module):
    def __init__(self, n_users, n_items, n_tiers, tiers, dim):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.tier = nn.Embedding(n_tiers, dim)
        self.tier_of = tiers.long()
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users, items, use_tiers):
        item = self.item(items)
        if use_tiers:
            item = item + self.tier(self.tier_of[items])
        return self.mlp(torch.cat([self.user(users), item], dim=-1)).squeeze(-1)
