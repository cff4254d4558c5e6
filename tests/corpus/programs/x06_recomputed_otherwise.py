# pytorch/torchtitan#1117: activation checkpointing of a layer that takes another path when it runs again
import torch
from torch.utils.checkpoint import checkpoint


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))
        self.calls = 0

    def forward(self, tokens):
        self.calls += 1
        first = 5 + self.calls
        return torch.cat([self.experts[0](tokens[:first]).relu(), self.experts[1](tokens[first:]).relu()])


router = Router()
optimizer = torch.optim.SGD(router.parameters(), lr=0.1)


def train():
    for _ in range(4):
        optimizer.zero_grad()
        loss = checkpoint(router, torch.randn(32, 16), use_reentrant=False).sum()
        loss.backward()
        optimizer.step()


train()
