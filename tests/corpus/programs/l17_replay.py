import random

import torch
import torch.multiprocessing as mp
import torch.nn as nn


class ReplayMemory:
    """Transitions in shared memory, so that the learner and the evaluators can read them."""

    def __init__(self, capacity):
        self.capacity, self.items, self.pos = capacity, [], 0

    def push(self, state, action, reward, next_state):
        entry = torch.cat([state, next_state, torch.tensor([float(action), reward])]).share_memory_()
        if len(self.items) < self.capacity:
            self.items.append(entry)
        else:
            self.items[self.pos] = entry
            self.pos = (self.pos + 1) % self.capacity

    def sample(self, n):
        rows = torch.stack(random.sample(self.items, n))
        return rows[:, :4], rows[:, 4:8], rows[:, 8].long(), rows[:, 9]


class PointEnv:
    def reset(self):
        self.x = torch.randn(4) * 0.1
        return self.x

    def step(self, action):
        self.x = self.x * 0.99 + (0.05 if action else -0.05) + torch.randn(4) * 0.01
        return self.x, -float(self.x.abs().sum())


def learn(net, opt, memory, gamma=0.95):
    state, next_state, action, reward = memory.sample(64)
    target = reward + gamma * net(next_state).max(1).values.detach()
    loss = nn.functional.smooth_l1_loss(net(state).gather(1, action[:, None]).squeeze(1), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    mp.set_sharing_strategy("file_system")
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    env, memory = PointEnv(), ReplayMemory(capacity=100_000)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    state = env.reset()
    for frame in range(1, 80_001):
        action = random.randrange(2) if frame < 1000 or frame % 10 == 0 else int(state.sum() < 0)
        next_state, reward = env.step(action)
        memory.push(state, action, reward, next_state)
        state = env.reset() if frame % 200 == 0 else next_state
        if frame % 5000 == 0:
            print(f"frame {frame} memory {len(memory.items)} loss {learn(net, opt, memory):.4f}", flush=True)


if __name__ == "__main__":
    main()
