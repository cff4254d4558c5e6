"""Personalised functional networks: sparse non-negative factorisation of fMRI time series."""
import argparse
import os
import resource
import tempfile
import time

import numpy as np
import torch

SITE_LIMITS = os.environ.get("SITE_LIMITS", "core=0,nofile=1024,stack=8388608,cpu=10")
KINDS = {"core": resource.RLIMIT_CORE, "nofile": resource.RLIMIT_NOFILE,
         "stack": resource.RLIMIT_STACK, "cpu": resource.RLIMIT_CPU}


def enter_job(profile):
    """Give the job the limits of the shell it was submitted from, as the batch system does."""
    for item in profile.split(","):
        name, value = item.split("=")
        hard = resource.getrlimit(KINDS[name])[1]
        resource.setrlimit(KINDS[name], (int(value), hard))


def parse_wall(text):
    h, m, s = (int(p) for p in text.split(":"))
    return 3600 * h + 60 * m + s


class Scan:
    """One subject: time points x vertices, built from smooth spatial networks."""

    def __init__(self, subject, time_points, vertices, networks):
        g = torch.Generator().manual_seed(subject)
        centre = torch.linspace(0, 1, networks)[:, None]
        grid = torch.linspace(0, 1, vertices)[None, :]
        maps = torch.exp(-((grid - centre) / 0.04) ** 2)
        courses = torch.rand(time_points, networks, generator=g)
        self.data = courses @ maps + 0.05 * torch.rand(time_points, vertices, generator=g)


class FactorModel:
    def __init__(self, time_points, vertices, networks, sparsity=0.02):
        self.u = torch.rand(time_points, networks)
        self.v = torch.rand(networks, vertices)
        self.sparsity = sparsity

    def step(self, x):
        eps = 1e-8
        self.u *= (x @ self.v.T) / (self.u @ (self.v @ self.v.T) + eps)
        self.v *= (self.u.T @ x) / ((self.u.T @ self.u) @ self.v + self.sparsity + eps)
        scale = self.v.amax(dim=1, keepdim=True).clamp_min(eps)
        self.v /= scale
        self.u *= scale.T

    def residual(self, x):
        return float((x - self.u @ self.v).norm() / x.norm())


def group_prior(subjects, args):
    total = torch.zeros(args.networks, args.vertices)
    for s in subjects:
        scan = Scan(s, args.time_points, args.vertices, args.networks)
        model = FactorModel(args.time_points, args.vertices, args.networks)
        for _ in range(5):
            model.step(scan.data)
        total += model.v
    return total / len(subjects)


def personalise(subject, prior, args):
    scan = Scan(subject, args.time_points, args.vertices, args.networks)
    model = FactorModel(args.time_points, args.vertices, args.networks)
    model.v = prior.clone()
    for it in range(args.iterations):
        model.step(scan.data)
    return model, model.residual(scan.data)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--subjects", type=int, default=20)
    ap.add_argument("--time-points", type=int, default=600)
    ap.add_argument("--vertices", type=int, default=8000)
    ap.add_argument("--networks", type=int, default=17)
    ap.add_argument("--iterations", type=int, default=60)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--wall", default="00:20:00")
    args = ap.parse_args()

    enter_job(SITE_LIMITS)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    out = tempfile.mkdtemp(prefix="pfn_")
    start = time.time()
    end = start + parse_wall(args.wall)
    print(f"job started, {args.threads} threads, wall time {args.wall}", flush=True)

    prior = group_prior(range(2), args)
    print(f"group prior ready after {time.time() - start:.1f}s", flush=True)
    for subject in range(args.subjects):
        if time.time() > end:
            print("wall time used up, stopping", flush=True)
            break
        model, res = personalise(subject, prior, args)
        np.save(os.path.join(out, f"sub-{subject:03d}.npy"), model.v.numpy())
        print(f"sub-{subject:03d} residual {res:.4f} after {time.time() - start:.1f}s", flush=True)
    print("done")


if __name__ == "__main__":
    main()
