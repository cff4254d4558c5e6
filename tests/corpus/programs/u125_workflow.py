"""Simulation-based inference as a chain of dependent jobs; the plan is stored so that it can be resumed."""
import argparse
import math
import os
import pickle
import sys

import torch
from torch import nn

sys.setrecursionlimit(1000000)


class Job:
    """One unit of work; `after` names the jobs whose results have to exist first."""

    def __init__(self, name, kind, **settings):
        self.name = name
        self.kind = kind
        self.settings = settings
        self.after = []
        self.done = False

    def needs(self, *jobs):
        self.after.extend(jobs)
        return self


class Plan:
    def __init__(self, title):
        self.title = title
        self.jobs = []

    def add(self, name, kind, after=(), **settings):
        job = Job(name, kind, **settings).needs(*after)
        self.jobs.append(job)
        return job

    def last(self):
        return self.jobs[-1]

    def ready(self):
        return [job for job in self.jobs if not job.done and all(dep.done for dep in job.after)]

    def store(self, folder):
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self.title}.plan")
        with open(path + ".tmp", "wb") as handle:
            pickle.dump(self.last(), handle, protocol=pickle.HIGHEST_PROTOCOL)
        os.replace(path + ".tmp", path)
        return os.path.getsize(path)


class RatioEstimator(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU(),
                                 nn.Linear(hidden, 1))

    def forward(self, theta, x):
        return self.net(torch.stack([theta, x], dim=1)).squeeze(1)


def simulate(n, noise):
    theta = torch.randn(n)
    return theta, torch.sin(theta) + noise * torch.randn(n)


def run_job(job, net, optim):
    theta, x = simulate(job.settings["size"], job.settings["noise"])
    joint = net(theta, x)
    marginal = net(theta[torch.randperm(len(theta))], x)
    loss = nn.functional.softplus(-joint).mean() + nn.functional.softplus(marginal).mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    job.done = True
    return loss.item()


def make_plan(title, rounds, size):
    plan = Plan(title)
    previous = plan.add("prior", "simulate", size=size, noise=0.5)
    for i in range(rounds):
        noise = 0.1 + 0.4 * math.exp(-i / 200)
        previous = plan.add(f"round-{i}", "train", after=[previous], size=size, noise=noise)
    return plan


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folder", default="plans")
    ap.add_argument("--size", type=int, default=256)
    ap.add_argument("--rounds", type=int, nargs="+", default=[50, 500, 40000])
    args = ap.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    net = RatioEstimator()
    optim = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for rounds in args.rounds:
        plan = make_plan(f"balanced-{rounds}", rounds, args.size)
        size = plan.store(args.folder)
        print(f"{plan.title}: {len(plan.jobs)} jobs stored, {size / 1024:.0f} KiB", flush=True)
        losses = []
        for job in plan.jobs[:200]:
            losses.append(run_job(job, net, optim))
        print(f"{plan.title}: first {len(losses)} jobs done, loss {losses[-1]:.4f}, next {len(plan.ready())}",
              flush=True)


if __name__ == "__main__":
    main()
