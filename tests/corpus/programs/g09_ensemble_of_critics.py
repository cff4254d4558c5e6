import copy

import torch
import torch.nn as nn
from torch.func import functional_call, stack_module_state, vmap


class QNetwork(nn.Module):
    def __init__(self, observation=17, action=6, hidden=64, dropout=0.01):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(observation + action, hidden),
            nn.Dropout(dropout),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, observation, action):
        return self.net(torch.cat([observation, action], dim=-1)).squeeze(-1)


class CriticEnsemble:
    def __init__(self, size=2):
        critics = [QNetwork() for _ in range(size)]
        self.params, self.buffers = stack_module_state(critics)
        self.base = copy.deepcopy(critics[0]).to("meta")
        self.call = vmap(self._single, in_dims=(0, 0, None, None))

    def _single(self, params, buffers, observation, action):
        return functional_call(self.base, (params, buffers), (observation, action))

    def __call__(self, observation, action):
        return self.call(self.params, self.buffers, observation, action)


def train(steps=50, gamma=0.99):
    torch.manual_seed(0)
    critics, actor = CriticEnsemble(), nn.Sequential(nn.Linear(17, 64), nn.ReLU(), nn.Linear(64, 6), nn.Tanh())
    optimizer = torch.optim.Adam(critics.params.values(), lr=3e-4)
    for step in range(steps):
        observation, following = torch.randn(256, 17), torch.randn(256, 17)
        action, reward = torch.rand(256, 6) * 2 - 1, torch.randn(256)
        with torch.no_grad():
            target = reward + gamma * critics(following, actor(following)).min(dim=0).values
        loss = ((critics(observation, action) - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} critic loss {loss.item():.4f}")


if __name__ == "__main__":
    train()
