"""Value learning from a replay memory that an actor fills in the background."""
import argparse
import threading
import time

import torch
from torch import nn

OBS, ACTIONS = 128, 6


class Environment:
    """A batch of linear systems with a little noise."""

    def __init__(self, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(count, OBS, generator=self.generator)
        self.drift = 0.98 * torch.eye(OBS) + 0.01 * torch.randn(OBS, OBS, generator=self.generator)
        self.push = 0.1 * torch.randn(ACTIONS, OBS, generator=self.generator)

    def step(self, action):
        noise = 0.05 * torch.randn(self.state.shape, generator=self.generator)
        self.state = (self.state @ self.drift + self.push[action] + noise).clamp_(-5, 5)
        return self.state, -self.state.square().mean(1)


class ReplayMemory:
    def __init__(self, rows=150_000, step=50_000, limit=700_000):
        self.step = step
        self.limit = limit
        self.size = 0
        self.obs = torch.zeros(rows, OBS)
        self.action = torch.zeros(rows, dtype=torch.long)
        self.reward = torch.zeros(rows)
        self.lock = threading.Lock()

    def _grow(self, needed):
        rows = self.obs.shape[0]
        while rows < needed:
            rows += self.step
        self.obs.resize_(rows, OBS)
        self.action.resize_(rows)
        self.reward.resize_(rows)

    def extend(self, obs, action, reward):
        count = len(obs)
        with self.lock:
            end = self.size + count
            if end > self.limit:
                return False
            if end > self.obs.shape[0]:
                self._grow(end)
            self.obs[self.size:end] = obs
            self.action[self.size:end] = action
            self.reward[self.size:end] = reward
            self.size = end
        return True

    def statistics(self):
        filled = self.obs[:self.size]
        mean = filled.mean(0)
        var = filled.square().mean(0) - mean.square()
        return mean, var.clamp_min(1e-6).sqrt()

    def sample(self, batch_size):
        index = torch.randint(0, self.size, (batch_size,))
        return self.obs[index], self.action[index], self.reward[index]


class Actor(threading.Thread):
    def __init__(self, memory, envs=500):
        super().__init__(name="actor", daemon=True)
        self.memory = memory
        self.environment = Environment(envs, seed=11)
        self.envs = envs

    def run(self):
        while True:
            action = torch.randint(0, ACTIONS, (self.envs,))
            time.sleep(0.005)
            before = self.environment.state
            _, reward = self.environment.step(action)
            if not self.memory.extend(before, action, reward):
                return


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 64), nn.ReLU(), nn.Linear(64, ACTIONS))

    def forward(self, x):
        return self.body(x)


def learn(memory, updates, batch_size):
    net = QNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for update in range(updates):
        mean, std = memory.statistics()
        obs, action, reward = memory.sample(batch_size)
        value = net((obs - mean) / std).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update:4d}  rows {memory.size:7d}  loss {loss.item():.4f}", flush=True)
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(0)
    memory = ReplayMemory()
    actor = Actor(memory)
    actor.start()
    while memory.size < 20_000:
        time.sleep(0.01)
    print(f"warm-up done, {memory.size} rows", flush=True)
    net = learn(memory, args.updates, args.batch_size)
    actor.join()
    torch.save(net.state_dict(), "/tmp/o13_qnet.pt")
    print("saved the network")


if __name__ == "__main__":
    main()
