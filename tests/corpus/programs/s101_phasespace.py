"""Phase-space source: fit a flux model on simulated particles, then score the plan's particles in a voxel grid."""
import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

SCORER_SOURCE = r"""
#include <stdint.h>

typedef struct {
    int64_t nx, ny, nz;
    double spacing;
    double *dose;
} grid_t;

void score_particles(const grid_t *grid, const double *x, const double *y, const double *z,
                     const double *energy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t ix = (int64_t)(x[i] / grid->spacing);
        int64_t iy = (int64_t)(y[i] / grid->spacing);
        int64_t iz = (int64_t)(z[i] / grid->spacing);
        grid->dose[(iz * grid->ny + iy) * grid->nx + ix] += energy[i];
    }
}
"""


class Grid(ctypes.Structure):
    _fields_ = [
        ("nx", ctypes.c_int64),
        ("ny", ctypes.c_int64),
        ("nz", ctypes.c_int64),
        ("spacing", ctypes.c_double),
        ("dose", ctypes.c_void_p),
    ]


def build_scorer():
    folder = Path(tempfile.mkdtemp(prefix="scorer_"))
    source = folder / "scorer.c"
    source.write_text(SCORER_SOURCE)
    library = folder / "libscorer.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


class DoseActor:
    def __init__(self, lib, size, spacing):
        self.lib = lib
        self.dose = np.zeros((size, size, size))
        self.grid = Grid(size, size, size, spacing, self.dose.ctypes.data)

    def score(self, particles):
        columns = [particles[key].ctypes.data_as(ctypes.c_void_p) for key in ("x", "y", "z", "energy")]
        self.lib.score_particles(ctypes.byref(self.grid), *columns, ctypes.c_int64(len(particles["x"])))
        return self.dose.sum()


class FluxModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                    nn.Linear(width, 1))

    def forward(self, position):
        return self.layers(position / 100.0).squeeze(-1)


def simulate_phase_space(rng, count, extent):
    particles = {key: rng.uniform(10.0, extent - 10.0, count) for key in ("x", "y", "z")}
    depth = particles["z"] / extent
    particles["energy"] = 6.0 * np.exp(-1.5 * depth) + rng.normal(0.0, 0.05, count)
    return particles


def fit_flux(model, particles, steps, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    position = torch.tensor(np.stack([particles[k] for k in ("x", "y", "z")], 1), dtype=torch.float32)
    energy = torch.tensor(particles["energy"], dtype=torch.float32)
    for step in range(steps):
        index = torch.randint(0, len(energy), (batch_size,))
        loss = nn.functional.mse_loss(model(position[index]), energy[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)


def sample_source(model, count, extent):
    generator = torch.Generator().manual_seed(11)
    position = torch.rand(count, 3, generator=generator) * (extent - 20.0) + 10.0
    with torch.no_grad():
        energy = model(position).clamp(min=0.0)
    columns = dict(zip(("x", "y", "z"), position.T.contiguous().numpy()))
    columns["energy"] = energy.numpy()
    return columns


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=20000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--spacing", type=float, default=4.0)
    args = parser.parse_args()

    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    extent = args.grid * args.spacing
    actor = DoseActor(build_scorer(), args.grid, args.spacing)

    recorded = simulate_phase_space(rng, args.particles, extent)
    print(f"recorded phase space: {actor.score(recorded):.1f} MeV scored", flush=True)
    model = FluxModel()
    fit_flux(model, recorded, args.steps, 512)

    generated = sample_source(model, args.particles, extent)
    print(f"generated {len(generated['x'])} particles, mean energy {generated['energy'].mean():.3f}", flush=True)
    print(f"generated phase space: {actor.score(generated):.1f} MeV scored", flush=True)


if __name__ == "__main__":
    main()
