"""Q-learning with a replay buffer in NumPy; the environment gives its observations after a reset."""

import numpy as np
import torch
from torch import nn


class Environment:
    def __init__(self, size):
        self.size, self.steps = size, 0

    def reset(self):
        self.steps = 0
        return np.zeros(self.size, dtype=np.float32)

    def step(self, action):
        self.steps += 1
        observation = np.random.rand(self.size)
        return observation, float(action == 0), self.steps >= 20


class Replay:
    def __init__(self):
        self.items = []

    def add(self, *item):
        self.items.append(item)

    def sample(self, count):
        chosen = [self.items[n] for n in np.random.randint(0, len(self.items), count)]
        before, action, reward, after = zip(*chosen)
        return [torch.from_numpy(np.array(part)) for part in (before, action, reward, after)]


def act(network, observation):
    return int(network(torch.as_tensor(observation, dtype=torch.float32)).argmax())


def train(episodes):
    np.random.seed(0)
    environment, replay = Environment(8), Replay()
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(network.parameters())
    for episode in range(episodes):
        observation, done = environment.reset(), False
        while not done:
            action = act(network, observation)
            after, reward, done = environment.step(action)
            replay.add(observation, action, reward, after)
            observation = after
        before, actions, rewards, afters = replay.sample(16)
        target = rewards + 0.9 * network(afters).max(1).values.detach()
        value = network(before).gather(1, actions[:, None])[:, 0]
        loss = nn.functional.mse_loss(value, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(3)
