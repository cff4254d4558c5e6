"""Pixel based soft Q-learning with a contrastive encoder (frame stack of 3, 128x128 colour frames)."""
import argparse
import os
import subprocess
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NODE_AGENT = r"""
import os, signal, sys, time
pid, quota = int(sys.argv[1]), int(sys.argv[2]) << 20
page = os.sysconf("SC_PAGE_SIZE")
while os.getppid() == pid:
    with open(f"/proc/{pid}/statm") as f:
        resident = int(f.read().split()[1]) * page
    if resident > quota:
        os.kill(pid, signal.SIGKILL)
        break
    time.sleep(0.02)
"""


def register_job(quota_mb):
    return subprocess.Popen([sys.executable, "-S", "-c", NODE_AGENT, str(os.getpid()), str(quota_mb)])


class ReplayBuffer:
    def __init__(self, obs_shape, capacity, batch_size):
        self.capacity, self.batch_size = capacity, batch_size
        self.obses = np.empty((capacity, *obs_shape), dtype=np.uint8)
        self.next_obses = np.empty((capacity, *obs_shape), dtype=np.uint8)
        self.actions = np.empty((capacity,), dtype=np.int64)
        self.rewards = np.empty((capacity,), dtype=np.float32)
        self.idx, self.full = 0, False

    def add(self, obs, action, reward, next_obs):
        np.copyto(self.obses[self.idx], obs)
        np.copyto(self.next_obses[self.idx], next_obs)
        self.actions[self.idx], self.rewards[self.idx] = action, reward
        self.idx = (self.idx + 1) % self.capacity
        self.full = self.full or self.idx == 0

    def sample(self):
        ids = np.random.randint(0, self.capacity if self.full else self.idx, size=self.batch_size)
        obs = torch.from_numpy(self.obses[ids]).float().div_(255)
        nxt = torch.from_numpy(self.next_obses[ids]).float().div_(255)
        return obs, torch.from_numpy(self.actions[ids]), torch.from_numpy(self.rewards[ids]), nxt


class Reacher:
    MOVES = np.array([[0, 0], [2, 0], [-2, 0], [0, 2], [0, -2]])

    def __init__(self):
        self.tip, self.goal = np.array([20, 20]), np.array([60, 50])
        self.frames = np.zeros((9, 128, 128), np.uint8)

    def render(self):
        img = np.full((3, 128, 128), 30, np.uint8)
        for chan, (y, x) in ((0, self.tip), (1, self.goal)):
            img[chan, y - 3:y + 3, x - 3:x + 3] = 255
        self.frames = np.concatenate([self.frames[3:], img])
        return self.frames

    def step(self, action):
        self.tip = np.clip(self.tip + self.MOVES[action], 4, 123)
        self.goal = np.clip(self.goal + np.random.randint(-2, 3, 2), 4, 123)
        return self.render(), -float(np.abs(self.tip - self.goal).sum()) / 128


class Agent(nn.Module):
    def __init__(self, actions=5, dim=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(9, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten())
        self.fc = nn.Linear(16 * 14 * 14, dim)
        self.W = nn.Parameter(torch.rand(dim, dim) * 0.1)
        self.q = nn.Linear(dim, actions)

    def forward(self, obs):
        return torch.tanh(self.fc(self.conv(obs)))


def update(agent, opt, buffer, gamma=0.95):
    obs, act, rew, nxt = buffer.sample()
    z = agent(obs)
    with torch.no_grad():
        target = rew + gamma * agent.q(agent(nxt)).max(1).values
        key = agent(torch.roll(obs, (2, -1), (2, 3)))
    td = F.smooth_l1_loss(agent.q(z).gather(1, act[:, None]).squeeze(1), target)
    curl = F.cross_entropy(z @ agent.W @ key.T, torch.arange(len(z)))
    opt.zero_grad()
    (td + curl).backward()
    opt.step()
    return td.item(), curl.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--replay_buffer_capacity", type=int, default=20000)
    ap.add_argument("--num_train_steps", type=int, default=1500)
    ap.add_argument("--init_steps", type=int, default=300)
    ap.add_argument("--quota_mb", type=int, default=520)
    args = ap.parse_args()
    np.random.seed(torch.manual_seed(1).initial_seed())
    torch.set_num_threads(1)
    register_job(args.quota_mb)
    env, agent = Reacher(), Agent()
    buffer = ReplayBuffer((9, 128, 128), args.replay_buffer_capacity, 16)
    opt = torch.optim.Adam(agent.parameters(), 1e-3)
    obs, score = env.render(), 0.0
    for step in range(1, args.num_train_steps + 1):
        action = np.random.randint(5)
        if step > args.init_steps and np.random.rand() > 0.2:
            with torch.no_grad():
                action = agent.q(agent(torch.from_numpy(obs)[None].float() / 255)).argmax().item()
        nxt, reward = env.step(action)
        buffer.add(obs, action, reward, nxt)
        obs, score = nxt, score + reward
        if step >= args.init_steps and step % 10 == 0:
            td, curl = update(agent, opt, buffer)
        if step > args.init_steps and step % 100 == 0:
            print(f"step {step} reward {score / 100:.3f} td {td:.4f} curl {curl:.4f}", flush=True)
            score = 0.0
    print("done, replay holds", buffer.capacity if buffer.full else buffer.idx)


if __name__ == "__main__":
    main()
