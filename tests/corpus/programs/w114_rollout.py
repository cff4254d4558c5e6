"""REINFORCE on a balance task; the best rollout is kept for later inspection."""
import argparse
import copy
import sys

import torch
from torch import nn

sys.setrecursionlimit(1000000)


class Transition:
    def __init__(self, obs, action, reward, prev):
        self.obs = obs
        self.action = action
        self.reward = reward
        self.prev = prev


class Rollout:
    def __init__(self):
        self.last = None
        self.length = 0
        self.total = 0.0

    def add(self, obs, action, reward):
        self.last = Transition(obs, action, reward, self.last)
        self.length += 1
        self.total += reward

    def __iter__(self):
        step = self.last
        while step is not None:
            yield step
            step = step.prev


class BalanceEnv:
    """A damped cart that leaves the track when pushed too far."""

    def __init__(self, max_steps, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.max_steps = max_steps
        self.noise = (0.01 * torch.randn(max_steps, generator=self.gen)).tolist()

    def reset(self):
        self.t, self.pos, self.vel = 0, 0.0, 0.0
        return (self.pos, self.vel)

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.02 * action + self.noise[self.t]
        self.pos = 0.95 * self.pos + self.vel
        self.t += 1
        done = abs(self.pos) > 5.0 or self.t >= self.max_steps
        return (self.pos, self.vel), 1.0 - abs(self.pos), done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([-0.5, -0.1]))
        self.log_std = nn.Parameter(torch.tensor(-1.0))

    def log_prob(self, obs, action):
        return torch.distributions.Normal(obs @ self.gain, self.log_std.exp()).log_prob(action)


def collect(env, policy):
    rollout = Rollout()
    g0, g1 = policy.gain.tolist()
    std = policy.log_std.exp().item()
    eps = torch.randn(env.max_steps).tolist()
    obs, done = env.reset(), False
    while not done:
        action = g0 * obs[0] + g1 * obs[1] + std * eps[env.t]
        nxt, reward, done = env.step(action)
        rollout.add(obs, action, reward)
        obs = nxt
    return rollout


def update(policy, opt, rollout):
    obs = torch.tensor([s.obs for s in rollout])
    actions = torch.tensor([s.action for s in rollout])
    rewards = torch.tensor([s.reward for s in rollout])
    loss = -(policy.log_prob(obs, actions) * (rewards - rewards.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--first-steps", type=int, default=400)
    parser.add_argument("--growth", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=0.01)
    best, steps = None, args.first_steps
    for episode in range(args.episodes):
        rollout = collect(BalanceEnv(steps, episode), policy)
        loss = update(policy, opt, rollout)
        print(f"episode {episode}: {rollout.length} steps, return {rollout.total:.1f}, "
              f"loss {loss:.4f}", flush=True)
        if best is None or rollout.total > best.total:
            best = copy.deepcopy(rollout)
        steps *= args.growth
    print(f"best return {best.total:.1f} over {best.length} steps", flush=True)


if __name__ == "__main__":
    main()
