"""Sequential neural ratio estimation, run as a graph of jobs.

Every job knows the jobs it waits for; the whole pipeline is saved between the
rounds, so that an interrupted study can be taken up again.
"""
import argparse
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.setrecursionlimit(1000000)


class Job:
    """One unit of work with the jobs it depends on."""

    def __init__(self, name, kind, payload=None):
        self.name = name
        self.kind = kind
        self.payload = payload
        self.dependencies = []
        self.result = None

    def after(self, *jobs):
        self.dependencies.extend(jobs)
        return self


class RatioEstimator(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU(),
                                 nn.Linear(hidden, 1))

    def forward(self, theta, x):
        return self.net(torch.cat([theta, x], dim=-1)).squeeze(-1)


def simulate(theta, gen):
    return theta.expand(-1, 2) + 0.3 * torch.randn(len(theta), 2, generator=gen)


class Pipeline:
    def __init__(self, args):
        self.args = args
        self.gen = torch.Generator().manual_seed(args.seed)
        self.model = RatioEstimator()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.last = Job("prior", "simulate")
        self.n_jobs = 1
        self.theta, self.x = [], []

    def submit(self, name, kind, payload):
        job = Job(name, kind, payload).after(self.last)
        self.last = job
        self.n_jobs += 1
        return job

    def execute(self, job):
        theta = job.payload
        x = simulate(theta, self.gen)
        self.theta.append(theta)
        self.x.append(x)
        job.payload = None
        job.result = {"chunk": len(self.x) - 1, "mean": round(x.mean().item(), 4)}

    def fit(self, steps):
        theta, x, total = torch.cat(self.theta), torch.cat(self.x), 0.0
        for _ in range(steps):
            idx = torch.randint(len(x), (self.args.batch,), generator=self.gen)
            other = torch.randint(len(x), (self.args.batch,), generator=self.gen)
            both, alone = self.model(theta[idx], x[idx]), self.model(theta[other], x[idx])
            loss = F.softplus(-both).mean() + F.softplus(alone).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / steps

    def run_round(self, number, chunks):
        for c in range(chunks):
            theta = torch.rand(self.args.chunk, 1, generator=self.gen) * 2 - 1
            self.execute(self.submit("round%d/chunk%d" % (number, c), "simulate", theta))
        return self.fit(self.args.steps)

    def save(self, path):
        state = {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "jobs": self.last}
        torch.save(state, path + ".tmp")
        os.replace(path + ".tmp", path)
        return os.path.getsize(path) / 1024


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--chunks", type=int, default=1200, help="simulated chunks of the first round")
    ap.add_argument("--growth", type=int, default=4)
    ap.add_argument("--chunk", type=int, default=8)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", default="pipeline.pt")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    pipe = Pipeline(args)
    chunks = args.chunks
    for number in range(args.rounds):
        loss = pipe.run_round(number, chunks)
        print("round %d  chunks %5d  loss %.4f" % (number, chunks, loss), flush=True)
        size = pipe.save(args.out)
        print("         saved %d jobs, %.0f KiB" % (pipe.n_jobs, size), flush=True)
        chunks *= args.growth
    print("study finished")


if __name__ == "__main__":
    main()
