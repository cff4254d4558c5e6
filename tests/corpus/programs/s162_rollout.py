"""Evolution strategy on a small control task, rollouts collected by worker processes."""
import argparse
import time

import torch
import torch.multiprocessing as mp
from torch import nn

OBS, ACT, STEPS = 6, 2, 40


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS, 24), nn.Tanh(), nn.Linear(24, ACT))

    def forward(self, x):
        return torch.tanh(self.net(x))


class Glider:
    """Linear toy dynamics with a target attitude."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.a = torch.eye(OBS) * 0.95 + 0.02 * torch.randn(OBS, OBS, generator=g)
        self.b = 0.3 * torch.randn(ACT, OBS, generator=g)
        self.x = torch.randn(OBS, generator=g)

    def step(self, action):
        self.x = self.x @ self.a + action @ self.b
        return self.x, -float(self.x.square().sum())


def flat(policy):
    return nn.utils.parameters_to_vector(policy.parameters()).detach()


def rollout(weights, seed):
    policy = Policy()
    nn.utils.vector_to_parameters(weights, policy.parameters())
    env, ret, obs = Glider(seed), 0.0, []
    with torch.no_grad():
        x = env.x
        for _ in range(STEPS):
            x, r = env.step(policy(x))
            obs.append(x)
            ret += r
    return torch.stack(obs), ret


def agent(worker, weights, seeds, results):
    torch.set_num_threads(1)
    for seed in seeds:
        g = torch.Generator().manual_seed(seed)
        noise = 0.1 * torch.randn(weights.numel(), generator=g)
        obs, ret = rollout(weights + noise, seed=7)
        results.put((worker, seed, ret, obs))


class Collector:
    def __init__(self, workers, per_worker):
        self.ctx = mp.get_context("spawn")
        self.workers = workers
        self.per_worker = per_worker

    def collect(self, weights, generation):
        results = self.ctx.Queue()
        procs = []
        for w in range(self.workers):
            base = 1000 * generation + 100 * w
            seeds = list(range(base, base + self.per_worker))
            p = self.ctx.Process(target=agent, args=(w, weights, seeds, results))
            p.start()
            procs.append(p)
        return procs, results

    def gather(self, procs, results):
        batch = []
        for p in procs:
            p.join()
        for _ in range(self.workers * self.per_worker):
            batch.append(results.get())
        return batch


def normaliser(batch):
    obs = torch.cat([b[3] for b in batch])
    return obs.mean(0), obs.std(0)


def update(weights, batch, lr):
    returns = torch.tensor([b[2] for b in batch])
    adv = (returns - returns.mean()) / (returns.std() + 1e-6)
    grad = torch.zeros_like(weights)
    for a, (_, seed, _, _) in zip(adv, batch):
        g = torch.Generator().manual_seed(seed)
        grad += a * 0.1 * torch.randn(weights.numel(), generator=g)
    return weights + lr * grad / len(batch)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--per-worker", type=int, default=6)
    ap.add_argument("--generations", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(0)
    weights = flat(Policy())
    for seed in range(5):
        print(f"warm-up seed {seed} return {rollout(weights, seed)[1]:.2f}", flush=True)
    collector = Collector(args.workers, args.per_worker)
    for gen in range(args.generations):
        t0 = time.time()
        procs, results = collector.collect(weights, gen)
        batch = collector.gather(procs, results)
        mean, std = normaliser(batch)
        weights = update(weights, batch, lr=0.5)
        print(f"generation {gen} mean return {sum(b[2] for b in batch) / len(batch):.2f} "
              f"obs std {std.mean():.3f} ({time.time() - t0:.1f}s)", flush=True)
    print("done")


if __name__ == "__main__":
    main()
