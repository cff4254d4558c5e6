"""Track a beacon from signal strengths: a network gives positions, a particle filter the track, a C library smooths it."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

SMOOTH_C = r"""
void smooth(const double *in, double *out, int n, double strength) {
    for (int i = 0; i < n; i++) out[i] = in[i];
    for (int sweep = 0; sweep < 20; sweep++)
        for (int i = 1; i + 1 < n; i++)
            out[i] += strength * (0.5 * (out[i - 1] + out[i + 1]) - out[i]);
}
"""
STATIONS = torch.linspace(-40, 40, 9)
SIGMA = 0.8
GATE = 38.0  # exp(-0.5 * 38 ** 2) is about 3e-314, the least weight of a particle


def build(folder):
    source, library = os.path.join(folder, "smooth.c"), os.path.join(folder, "libsmooth.so")
    with open(source, "w") as f:
        f.write(SMOOTH_C)
    subprocess.run(["gcc", "-O3", "-ffast-math", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


class Smoother:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        doubles = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
        self.lib.smooth.argtypes = [doubles, doubles, ctypes.c_int, ctypes.c_double]

    def __call__(self, track):
        values, out = np.array(track), np.empty(len(track))
        self.lib.smooth(values, out, len(track), 0.4)
        return out


class Locator(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(len(STATIONS), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, signal):
        return 40 * self.net(signal)[..., 0]


def signal_at(position):
    return 1 / (1 + ((position[..., None] - STATIONS) / 12) ** 2)


def fit_locator(steps=300):
    model = Locator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        position = torch.rand(256) * 80 - 40
        loss = nn.functional.mse_loss(model(signal_at(position)), position)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"locator error {loss.item() ** 0.5:.3f}", flush=True)
    return model.eval()


class ParticleFilter:
    def __init__(self, count, start):
        self.particles = start + torch.randn(count, dtype=torch.float64)

    def update(self, position):
        self.particles = self.particles + 0.5 * torch.randn_like(self.particles)
        distance = ((self.particles - position) / SIGMA).abs().clamp(max=GATE)
        weight = torch.exp(-0.5 * distance ** 2)
        weight = weight / weight.sum()
        chosen = torch.multinomial(weight, len(weight), replacement=True)
        self.particles = self.particles[chosen]
        return self.particles.mean().item()


class Tracker:
    def __init__(self, model, library, every=160):
        self.model, self.library, self.every = model, library, every
        self.filter, self.smoother, self.track = ParticleFilter(400, 0.0), None, []

    @torch.no_grad()
    def feed(self, signal):
        position = self.model(signal).double()
        self.track.append(self.filter.update(position))
        if len(self.track) % self.every == 0:
            self.smoother = self.smoother or Smoother(self.library)
            self.track[:-1] = self.smoother(self.track)[:-1].tolist()
            print(f"frame {len(self.track)} at {self.track[-1]:.2f}, smoothed", flush=True)


def main():
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as folder:
        tracker = Tracker(fit_locator(), build(folder))
        echoes = 0
        for frame in range(320):
            position = torch.tensor(12 * np.sin(frame / 40), dtype=torch.float32)
            signal = signal_at(position)
            if frame % 25 == 24:
                signal, echoes = signal * 6, echoes + 1
            tracker.feed(signal)
            if frame % 40 == 39:
                print(f"frame {frame} echoes {echoes} estimate {tracker.track[-1]:.2f}", flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main()
