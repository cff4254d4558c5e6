"""Policy gradient on a toy locomotion task; the rollouts of every iteration are
sampled by a few processes that work on a copy of the current policy."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch import multiprocessing


class Hopper1D:
    """A point mass that has to keep up with a moving reference."""
    obs_dim, act_dim = 24, 6

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.mix = np.random.RandomState(0).randn(2, self.obs_dim).astype(np.float32)

    def reset(self):
        self.t, self.x, self.v = 0, self.rng.uniform(-1, 1), 0.0
        return self._obs()

    def _obs(self):
        ref = math.sin(0.1 * self.t)
        return np.array([self.x - ref, self.v], np.float32) @ self.mix

    def step(self, action):
        self.v += 0.1 * float(np.tanh(action).mean()) - 0.02 * self.v
        self.x += self.v
        self.t += 1
        err = abs(self.x - math.sin(0.1 * self.t))
        return self._obs(), 1.0 - err, self.t >= 60 or err > 4.0


class Policy(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, act_dim)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def forward(self, obs):
        return torch.distributions.Normal(self.mean(self.body(obs)), self.log_std.exp())


class Memory:
    def __init__(self):
        self.obs, self.act, self.rew, self.last = [], [], [], []

    def push(self, obs, act, rew, last):
        for store, item in ((self.obs, obs), (self.act, act), (self.rew, rew), (self.last, last)):
            store.append(item)

    def append(self, other):
        for name in ("obs", "act", "rew", "last"):
            getattr(self, name).extend(getattr(other, name))


class Agent:
    def __init__(self, args):
        self.args = args
        self.policy = Policy(Hopper1D.obs_dim, Hopper1D.act_dim)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.norm_mean = torch.zeros(Hopper1D.obs_dim)
        self.norm_std = torch.ones(Hopper1D.obs_dim)

    def sample_worker(self, pid, queue, min_batch):
        torch.manual_seed(self.args.seed + 100 * self.iteration + pid)
        env, memory = Hopper1D(self.args.seed + 7 * self.iteration + pid), Memory()
        while len(memory.rew) < min_batch:
            obs, done = env.reset(), False
            while not done:
                with torch.no_grad():
                    x = (torch.from_numpy(obs) - self.norm_mean) / self.norm_std
                    act = self.policy(x.unsqueeze(0)).sample()[0].numpy()
                nxt, rew, done = env.step(act)
                memory.push(obs, act, rew, done)
                obs = nxt
        value = self.episode_scores(memory)
        if queue is None:
            return memory, value
        queue.put((pid, memory, value))

    def episode_scores(self, memory):
        """How well the current policy explains its own samples, in one batch."""
        with torch.no_grad():
            dist = self.policy((torch.from_numpy(np.stack(memory.obs)) - self.norm_mean) / self.norm_std)
            return dist.log_prob(torch.from_numpy(np.stack(memory.act))).sum(-1).mean().item()

    def sample(self, iteration):
        self.iteration = iteration
        share = self.args.batch // self.args.num_threads
        queue, workers = multiprocessing.Queue(), []
        for pid in range(1, self.args.num_threads):
            worker = multiprocessing.Process(target=self.sample_worker, args=(pid, queue, share), daemon=True)
            worker.start()
            workers.append(worker)
        memory, score = self.sample_worker(0, None, share)
        scores = [score]
        for _ in workers:
            pid, part, score = queue.get()
            memory.append(part)
            scores.append(score)
        for worker in workers:
            worker.join()
        return memory, float(np.mean(scores))

    def update(self, memory):
        obs = torch.from_numpy(np.stack(memory.obs))
        act = torch.from_numpy(np.stack(memory.act))
        ret, running = torch.zeros(len(memory.rew)), 0.0
        for i in reversed(range(len(memory.rew))):
            running = memory.rew[i] + (0.0 if memory.last[i] else 0.97 * running)
            ret[i] = running
        adv = (ret - ret.mean()) / (ret.std() + 1e-6)
        self.norm_mean, self.norm_std = obs.mean(0), obs.std(0) + 1e-3
        for _ in range(self.args.opt_epochs):
            dist = self.policy((obs - self.norm_mean) / self.norm_std)
            loss = -(dist.log_prob(act).sum(-1) * adv).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--num_threads", type=int, default=3)
    parser.add_argument("--batch", type=int, default=900)
    parser.add_argument("--opt_epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    multiprocessing.set_start_method("fork")
    torch.manual_seed(args.seed)
    agent = Agent(args)
    for it in range(args.iterations):
        start = time.time()
        memory, score = agent.sample(it)
        agent.update(memory)
        rate = len(memory.rew) / (time.time() - start)
        print(f"{it}\tR_avg {np.mean(memory.rew):.3f}\tlogp {score:.2f}\t{rate:.0f} steps/s", flush=True)
    torch.save(agent.policy.state_dict(), "/tmp/m45_rollouts_policy.pt")


if __name__ == "__main__":
    main()
