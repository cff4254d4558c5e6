"""Off-policy training on a pole balancing task with n-step returns and snapshots."""
import math
import os
import random
import sys
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/m54_nstep_run"
GAMMA, N_STEP = 0.97, 5
sys.setrecursionlimit(500_000)


class Pole:
    """Linearised pole on a cart; the horizon grows with the curriculum."""

    def __init__(self, rng):
        self.rng, self.horizon = rng, 200

    def reset(self):
        self.state = [self.rng.uniform(-0.02, 0.02) for _ in range(4)]
        self.t = 0
        return list(self.state)

    def step(self, action):
        x, v, a, w = self.state
        force = 1.0 if action else -1.0
        acc = 0.8 * math.sin(a) - 0.3 * force * math.cos(a)
        self.state = [x + 0.02 * v, 0.99 * v + 0.02 * force, a + 0.02 * w, 0.99 * w + 0.02 * acc]
        self.t += 1
        reward = 1.0 - min(abs(self.state[2]), 1.0)
        if abs(self.state[2]) > 0.8:
            self.state[2], self.state[3] = 0.0, 0.0
        return list(self.state), reward, self.t >= self.horizon


class Transition:
    __slots__ = ("obs", "action", "reward", "done", "next")

    def __init__(self, obs, action, reward, done):
        self.obs, self.action, self.reward, self.done = obs, action, reward, done
        self.next = None

    def returns(self, n):
        total, scale, node = 0.0, 1.0, self
        for _ in range(n):
            total += scale * node.reward
            scale *= GAMMA
            if node.next is None:
                return total, 0.0, node.obs
            node = node.next
        return total, scale, node.obs


class Memory:
    def __init__(self, size, rng):
        self.items, self.rng, self.last = deque(maxlen=size), rng, None

    def add(self, obs, action, reward, done):
        t = Transition(obs, action, reward, done)
        if self.last is not None:
            self.last.next = t
        self.last = None if done else t
        self.items.append(t)

    def batch(self, k):
        picked = [self.items[self.rng.randrange(len(self.items))] for _ in range(k)]
        rets = [t.returns(N_STEP) for t in picked]
        return (torch.tensor([t.obs for t in picked]),
                torch.tensor([t.action for t in picked]),
                torch.tensor([r[0] for r in rets]),
                torch.tensor([r[1] for r in rets]),
                torch.tensor([r[2] for r in rets]))


class Agent:
    def __init__(self, rng):
        self.rng, self.eps = rng, 0.3
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.memory = Memory(60_000, rng)

    @torch.no_grad()
    def act(self, obs):
        if self.rng.random() < self.eps:
            return self.rng.randrange(2)
        return int(self.net(torch.tensor(obs)).argmax())

    def learn(self, updates):
        for _ in range(updates):
            obs, action, ret, scale, ahead = self.memory.batch(64)
            with torch.no_grad():
                target = ret + scale * self.net(ahead).max(1).values
            value = self.net(obs).gather(1, action[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(value, target)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


class Snapshots:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def write(self, agent, stage):
        path = os.path.join(self.folder, f"stage_{stage}.pt")
        torch.save({"net": agent.net.state_dict(), "opt": agent.opt.state_dict(),
                    "memory": agent.memory.items, "stage": stage}, path)
        return os.path.getsize(path)


def run_stage(agent, env, episodes):
    total = 0.0
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            action = agent.act(obs)
            after, reward, done = env.step(action)
            agent.memory.add(obs, action, reward, done)
            obs, total = after, total + reward
    return total / (episodes * env.horizon)


def main():
    rng = random.Random(3)
    torch.manual_seed(3)
    env, agent, snapshots = Pole(rng), Agent(rng), Snapshots(WORK)
    stages = [(200, 10), (500, 4), (1000, 2), (40_000, 1)]
    for stage, (horizon, episodes) in enumerate(stages):
        env.horizon = horizon
        score = run_stage(agent, env, episodes)
        loss = agent.learn(100)
        agent.eps *= 0.6
        print(f"stage {stage} horizon {horizon} score {score:.3f} loss {loss:.4f}", flush=True)
        size = snapshots.write(agent, stage)
        print(f"stage {stage} snapshot {size} bytes", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
