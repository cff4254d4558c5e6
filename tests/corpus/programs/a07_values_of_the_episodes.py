import torch
import torch.nn as nn


class Critic(nn.Module):
    def __init__(self, obs_dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, obs):
        return self.body(obs)


def discounted_returns(rewards, gamma=0.99):
    returns = torch.empty_like(rewards)
    running = torch.zeros(rewards.shape[1])
    for t in reversed(range(rewards.shape[0])):
        running = rewards[t] + gamma * running
        returns[t] = running
    return returns.reshape(-1)


def collect(n_steps, n_envs, obs_dim):
    return torch.randn(n_steps, n_envs, obs_dim), torch.rand(n_steps, n_envs)


def update(critic, optimizer, obs, returns):
    values = critic(obs)
    advantage = returns - values.detach()
    weight = (advantage > 0).float()
    loss = (weight * (returns - values) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train():
    torch.manual_seed(0)
    n_steps, n_envs, obs_dim = 1000, 500, 4
    critic = Critic(obs_dim)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4)
    for iteration in range(3):
        obs, rewards = collect(n_steps, n_envs, obs_dim)
        returns = discounted_returns(rewards)
        loss = update(critic, optimizer, obs.reshape(-1, obs_dim), returns)
        print(f"iteration {iteration}: value loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    train()
