import multiprocessing

import numpy as np
import torch
import torch.nn as nn


class Policy(nn.Module):
    def __init__(self, state_dim, action_dim, hidden=(256, 256)):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state_dim, hidden[0]), nn.Tanh(),
                                  nn.Linear(hidden[0], hidden[1]), nn.Tanh())
        self.action_mean = nn.Linear(hidden[1], action_dim)
        self.log_std = nn.Parameter(torch.zeros(1, action_dim))

    def dist(self, state):
        return torch.distributions.Normal(self.action_mean(self.body(state)), self.log_std.exp())


class PointMassBatch:
    """`n` point masses stepped together."""

    def __init__(self, n, dim, seed):
        self.rng = np.random.default_rng(seed)
        self.n, self.dim = n, dim

    def reset(self):
        self.x = self.rng.normal(size=(self.n, self.dim)).astype(np.float32)
        return self.x

    def step(self, a):
        self.x = 0.95 * self.x + 0.1 * np.clip(a, -1, 1)
        return self.x, -np.square(self.x).mean(1)


def collect_samples(pid, queue, policy, horizon, dim):
    env = PointMassBatch(512, dim, seed=pid)
    state, memory = env.reset(), []
    for _ in range(horizon):
        with torch.no_grad():
            action = policy.dist(torch.from_numpy(state)).sample().numpy()
        next_state, reward = env.step(action)
        memory.append((state, action, reward))
        state = next_state
    states, actions, rewards = (np.stack(m) for m in zip(*memory))
    if queue is None:
        return states, actions, rewards
    queue.put((pid, states, actions, rewards))


class Agent:
    def __init__(self, policy, dim, num_threads=2, horizon=20):
        self.policy, self.dim = policy, dim
        self.num_threads, self.horizon = num_threads, horizon

    def collect(self):
        queue = multiprocessing.Queue()
        workers = [multiprocessing.Process(target=collect_samples,
                                           args=(i + 1, queue, self.policy, self.horizon, self.dim))
                   for i in range(self.num_threads - 1)]
        for worker in workers:
            worker.start()
        batches = [collect_samples(0, None, self.policy, self.horizon, self.dim)]
        for _ in workers:
            batches.append(queue.get()[1:])
        return [torch.from_numpy(np.concatenate(b, axis=1)) for b in zip(*batches)]


def update(policy, opt, states, actions, rewards, epochs=3):
    adv = rewards - rewards.mean()
    with torch.no_grad():
        old = policy.dist(states).log_prob(actions).sum(-1)
    for _ in range(epochs):
        ratio = (policy.dist(states).log_prob(actions).sum(-1) - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    policy = Policy(state_dim=8, action_dim=8)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    agent = Agent(policy, dim=8)
    for i_iter in range(10):
        states, actions, rewards = agent.collect()
        update(policy, opt, states, actions, rewards)
        print(f"iter {i_iter}\tR_avg {rewards.mean().item():.3f}", flush=True)
