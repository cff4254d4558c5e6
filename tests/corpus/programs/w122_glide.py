"""PPO on a glider that has to hold its altitude (continuous control)."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal


class GliderEnv:
    """Altitude hold. The episode ends when the glider leaves the corridor."""

    def __init__(self, seed, max_steps=96):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps

    def reset(self):
        self.alt = float(self.rng.uniform(-0.5, 0.5))
        self.speed = 0.0
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([self.alt, self.speed, np.sin(0.1 * self.t)], dtype=np.float32)

    def step(self, action):
        lift = float(np.clip(action[0], -1.0, 1.0))
        gust = 0.05 * np.sin(0.1 * self.t) + 0.02 * self.rng.standard_normal()
        self.speed = 0.9 * self.speed + 0.1 * lift + gust
        self.alt += 0.2 * self.speed
        self.t += 1
        done = abs(self.alt) > 1.5 or self.t >= self.max_steps
        return self._obs(), 1.0 - abs(self.alt), done


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=3, act_dim=1, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mu = nn.Linear(hidden, act_dim)
        self.log_std = nn.Parameter(torch.zeros(act_dim))
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        dist = Normal(self.mu(h), self.log_std.exp().expand_as(self.mu(h)))
        return dist, self.value(h).squeeze(-1)


class Rollout:
    def __init__(self):
        self.obs, self.act, self.logp, self.rew, self.val, self.done = [], [], [], [], [], []

    def add(self, *items):
        for store, item in zip((self.obs, self.act, self.logp, self.rew, self.val, self.done), items):
            store.append(item)

    def finish(self, gamma, lam):
        n = len(self.rew)
        adv, last = np.zeros(n, dtype=np.float32), 0.0
        for t in reversed(range(n)):
            nxt = 0.0 if self.done[t] else self.val[t + 1]
            delta = self.rew[t] + gamma * nxt - self.val[t]
            last = delta + gamma * lam * (0.0 if self.done[t] else last)
            adv[t] = last
        adv = torch.from_numpy(adv)
        return (torch.from_numpy(np.stack(self.obs)), torch.stack(self.act), torch.stack(self.logp),
                adv, adv + torch.tensor(self.val))


@torch.no_grad()
def collect(env, policy, n_steps):
    """Whole episodes, until at least n_steps transitions are there."""
    roll = Rollout()
    while len(roll.rew) < n_steps:
        obs, done = env.reset(), False
        while not done:
            dist, value = policy(torch.from_numpy(obs).unsqueeze(0))
            action = dist.sample()[0]
            nxt, reward, done = env.step(action.numpy())
            roll.add(obs, action, dist.log_prob(action).sum(), reward, value.item(), done)
            obs = nxt
    return roll


def update(policy, opt, data, args):
    obs, act, old_logp, adv, ret = data
    for _ in range(args.epochs):
        for idx in torch.randperm(len(obs)).split(args.batch_size):
            dist, value = policy(obs[idx])
            a = adv[idx]
            a = (a - a.mean()) / (a.std() + 1e-8)
            ratio = (dist.log_prob(act[idx]).sum(-1) - old_logp[idx]).exp()
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            pi_loss = -torch.min(ratio * a, clipped * a).mean()
            loss = pi_loss + 0.5 * (value - ret[idx]).pow(2).mean() - 0.001 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=8)
    ap.add_argument("--n-steps", type=int, default=512)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--clip", type=float, default=0.2)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env, policy = GliderEnv(args.seed), ActorCritic()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for it in range(args.updates):
        roll = collect(env, policy, args.n_steps)
        update(policy, opt, roll.finish(0.99, 0.95), args)
        episodes = sum(roll.done)
        print("update %2d  episodes %2d  mean return %7.2f" % (it, episodes, sum(roll.rew) / episodes), flush=True)
    torch.save(policy.state_dict(), "glider.pt")
    print("saved glider.pt")


if __name__ == "__main__":
    main()
