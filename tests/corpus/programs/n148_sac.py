"""Soft actor-critic on a point-reaching task."""
import argparse
import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class ReachEnv:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.pos = torch.rand(2, generator=self.generator) * 2 - 1
        self.goal = torch.rand(2, generator=self.generator) * 2 - 1
        self.t = 0
        return torch.cat([self.pos, self.goal])

    def step(self, action):
        self.pos = (self.pos + 0.2 * action).clamp(-1, 1)
        self.t += 1
        reward = -(self.pos - self.goal).norm().item()
        return torch.cat([self.pos, self.goal]), reward, self.t >= 20


def mlp(n_in, n_out, hidden=64):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(),
                         nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out))


class Policy(nn.Module):
    def __init__(self, n_state, n_action):
        super().__init__()
        self.net = mlp(n_state, 2 * n_action)

    def sample(self, state):
        mean, log_std = self.net(state).chunk(2, dim=-1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = dist.rsample()
        action = raw.tanh()
        log_prob = dist.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, -log_prob.sum(-1, keepdim=True)


class SacAgent:
    def __init__(self, n_state, n_action, lr, gamma, alpha, tau):
        self.policy = Policy(n_state, n_action)
        self.q1 = mlp(n_state + n_action, 1)
        self.q2 = mlp(n_state + n_action, 1)
        self.target_q1 = copy.deepcopy(self.q1)
        self.target_q2 = copy.deepcopy(self.q2)
        self.policy_optim = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.q1_optim = torch.optim.Adam(self.q1.parameters(), lr=lr)
        self.q2_optim = torch.optim.Adam(self.q2.parameters(), lr=lr)
        self.gamma, self.alpha, self.tau = gamma, alpha, tau

    def calc_critic_loss(self, state, action, reward, next_state, done):
        with torch.no_grad():
            next_action, entropy = self.policy.sample(next_state)
            pair = torch.cat([next_state, next_action], dim=1)
            next_q = torch.min(self.target_q1(pair), self.target_q2(pair)) + self.alpha * entropy
            target = reward + (1 - done) * self.gamma * next_q
        pair = torch.cat([state, action], dim=1)
        return F.mse_loss(self.q1(pair), target), F.mse_loss(self.q2(pair), target)

    def calc_policy_loss(self, state):
        action, entropy = self.policy.sample(state)
        pair = torch.cat([state, action], dim=1)
        q = torch.min(self.q1(pair), self.q2(pair))
        return -(q + self.alpha * entropy).mean()

    def learn(self, batch):
        q1_loss, q2_loss = self.calc_critic_loss(*batch)
        policy_loss = self.calc_policy_loss(batch[0])
        update_params(self.q1_optim, q1_loss)
        update_params(self.q2_optim, q2_loss)
        update_params(self.policy_optim, policy_loss)
        for net, target in ((self.q1, self.target_q1), (self.q2, self.target_q2)):
            for p, tp in zip(net.parameters(), target.parameters()):
                tp.data.lerp_(p.data, self.tau)
        return q1_loss.item(), policy_loss.item()


def update_params(optim, loss):
    optim.zero_grad()
    loss.backward()
    optim.step()


def collate(rows):
    state, action, reward, next_state, done = zip(*rows)
    return (torch.stack(state), torch.stack(action), torch.tensor(reward)[:, None],
            torch.stack(next_state), torch.tensor(done, dtype=torch.float32)[:, None])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=26)
    parser.add_argument("--start-steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    random.seed(9)
    env, memory, steps = ReachEnv(9), deque(maxlen=5000), 0
    agent = SacAgent(4, 2, lr=1e-3, gamma=0.95, alpha=0.1, tau=0.02)
    for episode in range(args.episodes):
        state, total, done = env.reset(), 0.0, False
        while not done:
            with torch.no_grad():
                action = agent.policy.sample(state)[0] if steps >= args.start_steps else torch.rand(2) * 2 - 1
            next_state, reward, done = env.step(action)
            memory.append((state, action, reward, next_state, done))
            state, total, steps = next_state, total + reward, steps + 1
            if steps >= args.start_steps:
                agent.learn(collate(random.sample(memory, args.batch_size)))
        if episode % 5 == 0:
            print(f"episode {episode} steps {steps} return {total:.2f}", flush=True)


if __name__ == "__main__":
    main()
