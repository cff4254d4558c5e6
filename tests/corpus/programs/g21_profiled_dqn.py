import argparse
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class QNet(nn.Module):
    def __init__(self, obs_dim=8, n_actions=4, hidden=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, n_actions),
        )

    def forward(self, obs):
        return self.net(obs)


class RandomWalkEnv:
    def __init__(self, obs_dim=8):
        self.obs_dim = obs_dim

    def reset(self):
        self.t = 0
        self.state = torch.zeros(self.obs_dim)
        return self.state

    def step(self, action):
        self.t += 1
        self.state = self.state + 0.1 * torch.randn(self.obs_dim) + 0.05 * (action - 1.5)
        return self.state, -self.state.abs().mean().item(), self.t >= 50


class PerfLogger:
    """Collects operator timings during training and prints a table."""

    def __init__(self, enabled=True, rows=10):
        self.enabled = enabled
        self.rows = rows
        self.prof = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            record_shapes=True, with_stack=True,
        )

    def begin(self):
        if self.enabled:
            self.prof.start()

    def tick(self):
        if self.enabled:
            self.prof.step()

    def report(self):
        if self.enabled:
            stats = self.prof.key_averages()
            print(stats.table(sort_by="cpu_time_total", row_limit=self.rows))


def td_loss(q, target, batch, gamma=0.99):
    obs, act, rew, nxt, done = (torch.stack([torch.as_tensor(b[i]) for b in batch]) for i in range(5))
    q_sa = q(obs).gather(1, act.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        y = rew + gamma * (1 - done.float()) * target(nxt).max(1).values
    return F.smooth_l1_loss(q_sa, y.float())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    env, memory = RandomWalkEnv(), deque(maxlen=5000)
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    perf = PerfLogger()
    perf.begin()
    obs = env.reset()
    for step in range(args.steps):
        action = random.randrange(4) if random.random() < 0.2 else q(obs).argmax().item()
        nxt, reward, done = env.step(action)
        memory.append((obs, action, reward, nxt, done))
        obs = env.reset() if done else nxt
        if len(memory) >= 16:
            loss = td_loss(q, target, random.sample(memory, 16))
            opt.zero_grad()
            loss.backward()
            opt.step()
        perf.tick()
        if step % 20 == 19:
            target.load_state_dict(q.state_dict())
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    perf.report()
    torch.save(q.state_dict(), "/tmp/dqn_qnet.pt")


if __name__ == "__main__":
    main()
