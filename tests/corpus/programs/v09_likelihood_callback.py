import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SOURCE = r"""
typedef double (*likelihood_t)(const double *theta, int ndim);
static likelihood_t likelihood;
static unsigned seed = 1;
void set_likelihood(likelihood_t f) { likelihood = f; }
static double uniform(void) { seed = seed * 1103515245u + 12345u; return (seed >> 8) / 16777216.0; }
double run(int samples, int ndim)
{
    double theta[16], best = -1e300;
    for (int s = 0; s < samples; s++) {
        for (int d = 0; d < ndim; d++) theta[d] = 4 * uniform() - 2;
        double value = likelihood(theta, ndim);
        best = value > best ? value : best;
    }
    return best;
}
"""
LIKELIHOOD = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.POINTER(ctypes.c_double), ctypes.c_int)

class Sampler:
    def __init__(self, loglike):
        folder = Path(tempfile.mkdtemp(prefix="sampler_"))
        (folder / "sampler.c").write_text(SOURCE)
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "sampler.c", "-o", "libsampler.so"], cwd=folder, check=True)
        self.lib = ctypes.CDLL(str(folder / "libsampler.so"))
        self.lib.run.restype = ctypes.c_double
        self.lib.set_likelihood(LIKELIHOOD(loglike))

    def run(self, samples, ndim):
        return self.lib.run(samples, ndim)

def fit_emulator(steps=100):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        theta = torch.rand(64, 2) * 4 - 2
        optimizer.zero_grad()
        nn.functional.mse_loss(net(theta)[:, 0], -(theta ** 2).sum(1)).backward()
        optimizer.step()
    return net

def main():
    net = fit_emulator()

    def loglike(theta, ndim):
        with torch.no_grad():
            return net(torch.tensor(theta[:ndim])).item()

    sampler = Sampler(loglike)
    print("emulator ready, sampling", flush=True)
    print(f"best log-likelihood {sampler.run(2000, 2):.3f}")

if __name__ == "__main__":
    main()
