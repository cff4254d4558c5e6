"""Policy gradient on a vector of environments that live in worker processes."""
import multiprocessing as mp
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_ENVS = 3
N_OBS = 6
N_ACTIONS = 3
OUT = "/tmp/d65_vecenv_policy.pt"


class TankEnv:
    """Keep the level of a tank near its target by opening or closing a valve."""

    def __init__(self, seed, horizon=60):
        self.rng = np.random.default_rng(seed)
        self.horizon = horizon

    def reset(self):
        self.t, self.level, self.valve = 0, self.rng.uniform(0.2, 0.8), 0.5
        self.target = self.rng.uniform(0.3, 0.7)
        return self.observe()

    def observe(self):
        gap = self.level - self.target
        return np.array([self.level, self.valve, self.target, gap, gap * gap, self.t / self.horizon], np.float32)

    def step(self, action):
        self.valve = float(np.clip(self.valve + 0.1 * (int(action) - 1), 0, 1))
        self.level = float(np.clip(self.level + 0.05 * (self.valve - 0.5) + self.rng.normal(0, 0.005), 0, 1))
        self.t += 1
        done = self.t >= self.horizon
        reward = -abs(self.level - self.target)
        info = {"episode_end_gap": abs(self.level - self.target)} if done else {}
        obs = self.reset() if done else self.observe()
        return obs, reward, done, info


def env_worker(conn, seed):
    env = TankEnv(seed)
    while True:
        command, data = conn.recv()
        if command == "reset":
            conn.send(env.reset())
        elif command == "step":
            conn.send(env.step(data))
        elif command == "close":
            break


class VectorEnv:
    def __init__(self, n):
        ctx = mp.get_context("fork")
        self.conns, self.procs = [], []
        for i in range(n):
            ours, theirs = ctx.Pipe()
            proc = ctx.Process(target=env_worker, args=(theirs, 100 + i), name=f"env-{i}")
            proc.start()
            self.conns.append(ours)
            self.procs.append(proc)

    def reset(self):
        for c in self.conns:
            c.send(("reset", None))
        return np.stack([c.recv() for c in self.conns])

    def step(self, actions):
        for c, a in zip(self.conns, actions):
            c.send(("step", a))
        obs, rewards, dones, infos = zip(*[c.recv() for c in self.conns])
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones), infos

    def close(self):
        for c in self.conns:
            c.send(("close", None))
        for p in self.procs:
            p.join()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(N_OBS, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, N_ACTIONS), nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Learner:
    def __init__(self, envs, steps=40, gamma=0.97):
        self.envs, self.steps, self.gamma = envs, steps, gamma
        self.policy = Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-3)
        self.obs = torch.from_numpy(envs.reset())
        self.history = defaultdict(lambda: [])

    def collect(self):
        logps, values, rewards, masks, gaps = [], [], [], [], []
        for _ in range(self.steps):
            dist, value = self.policy(self.obs)
            action = dist.sample()
            obs, reward, done, infos = self.envs.step(action.numpy())
            logps.append(dist.log_prob(action))
            values.append(value)
            rewards.append(torch.from_numpy(reward))
            masks.append(1.0 - torch.from_numpy(done).float())
            gaps += [i["episode_end_gap"] for i in infos if i]
            self.obs = torch.from_numpy(obs)
        return torch.stack(logps), torch.stack(values), torch.stack(rewards), torch.stack(masks), gaps

    def update(self):
        logps, values, rewards, masks, gaps = self.collect()
        returns, running = torch.zeros_like(rewards), torch.zeros(N_ENVS)
        for t in reversed(range(self.steps)):
            running = rewards[t] + self.gamma * masks[t] * running
            returns[t] = running
        adv = (returns - values).detach()
        loss = -(logps * adv).mean() + 0.5 * F.mse_loss(values, returns)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.history["return"].append(returns[0].mean().item())
        self.history["end_gap"] += gaps
        return loss.item()

    def save(self, path):
        torch.save({"policy": self.policy.state_dict(), "history": self.history}, path)


def main():
    torch.manual_seed(0)
    envs = VectorEnv(N_ENVS)
    learner = Learner(envs)
    for i in range(1, 41):
        loss = learner.update()
        if i % 10 == 0:
            print(f"update {i}: loss {loss:.4f}, return {learner.history['return'][-1]:.3f}", flush=True)
    learner.save(OUT)
    print(f"saved to {OUT}", flush=True)
    envs.close()


if __name__ == "__main__":
    main()
