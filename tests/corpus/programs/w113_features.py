"""Extract features from sensor recordings, first a calibration run, then per site."""
import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.proj = nn.Linear(channels, width)
        self.out = nn.Linear(width, 16)

    def forward(self, x):
        return self.out(torch.relu(self.proj(x)))


class Recording:
    def __init__(self, site, samples, channels):
        rng = np.random.default_rng(site)
        self.site = site
        self.signal = rng.standard_normal((samples, channels))

    def normalised(self):
        mat = torch.from_numpy(self.signal).float()
        return (mat - mat.mean(0)) / mat.std(0)


def calibrate(encoder, recording, steps):
    opt = torch.optim.SGD(encoder.parameters(), lr=0.01)
    x = recording.normalised()
    for step in range(steps):
        z = encoder(x)
        loss = (z.mean(0) ** 2).sum() + ((z.std(0) - 1) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"calibration step {step}: {loss.item():.4f}", flush=True)


def extract(site, samples, channels, state, results):
    print(f"site {site}: reading", flush=True)
    recording = Recording(site, samples, channels)
    x = recording.normalised()
    print(f"site {site}: encoding {tuple(x.shape)}", flush=True)
    encoder = Encoder(channels, 64)
    encoder.load_state_dict(state)
    with torch.no_grad():
        z = encoder(x).mean(0)
    results.put((site, z.tolist()))


def extract_site(site, args, state):
    results = multiprocessing.Queue()
    worker = multiprocessing.Process(
        target=extract, args=(site, args.samples, args.channels, state, results))
    worker.start()
    worker.join()
    site, feature = results.get()
    return torch.tensor(feature)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    began = time.time()
    encoder = Encoder(args.channels, 64)
    calibrate(encoder, Recording(100, args.samples, args.channels), args.steps)
    state = {k: v.clone() for k, v in encoder.state_dict().items()}

    table = []
    for site in range(args.sites):
        feature = extract_site(site, args, state)
        table.append(feature)
        print(f"site {site}: feature norm {feature.norm():.4f}", flush=True)
    print(f"{len(table)} sites in {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
