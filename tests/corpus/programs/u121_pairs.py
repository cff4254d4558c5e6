"""Learn per-atom energies of small clusters, then describe a bulk box with the same radial features."""
import argparse
import os
import sys
import time

import torch
from torch import nn
from torch.utils.cpp_extension import load

CPP = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <algorithm>
#include <cmath>
#include <vector>

using torch::stable::Tensor;

Tensor neighbor_pairs(Tensor coords, double cutoff, double box) {
  Tensor xyz = torch::stable::contiguous(coords);
  const float* p = static_cast<const float*>(xyz.const_data_ptr());
  const int n = static_cast<int>(xyz.size(0));
  const int m = std::max(1, static_cast<int>(std::floor(box / cutoff)));
  std::vector<std::vector<int>> cells(m * m * m);
  auto slot = [&](float v) { return std::min(m - 1, std::max(0, static_cast<int>(v / box * m))); };
  for (int i = 0; i < n; ++i)
    cells[(slot(p[3 * i]) * m + slot(p[3 * i + 1])) * m + slot(p[3 * i + 2])].push_back(i);

  std::vector<int> pairs;
  const double r2 = cutoff * cutoff;
  for (int i = 0; i < n; ++i) {
    const int a = slot(p[3 * i]), b = slot(p[3 * i + 1]), c = slot(p[3 * i + 2]);
    for (int x = std::max(0, a - 1); x <= std::min(m - 1, a + 1); ++x)
      for (int y = std::max(0, b - 1); y <= std::min(m - 1, b + 1); ++y)
        for (int z = std::max(0, c - 1); z <= std::min(m - 1, c + 1); ++z)
          for (int j : cells[(x * m + y) * m + z]) {
            if (j == i) continue;
            const double dx = p[3 * i] - p[3 * j], dy = p[3 * i + 1] - p[3 * j + 1], dz = p[3 * i + 2] - p[3 * j + 2];
            if (dx * dx + dy * dy + dz * dz < r2) { pairs.push_back(i); pairs.push_back(j); }
          }
  }
  const int64_t count = static_cast<int64_t>(pairs.size() / 2);
  return torch::stable::from_blob(pairs.data(), {count, 2}, {2, 1}, xyz.device(), torch::headeronly::ScalarType::Int);
}

STABLE_TORCH_LIBRARY(mdtools, lib) { lib.def("neighbor_pairs(Tensor coords, float cutoff, float box) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(mdtools, CPU, lib) { lib.impl("neighbor_pairs", TORCH_BOX(&neighbor_pairs)); }
"""


def build_ops(folder):
    os.makedirs(folder, exist_ok=True)
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    source = os.path.join(folder, "neighbors.cpp")
    if not os.path.exists(source):
        with open(source, "w") as handle:
            handle.write(CPP)
    load("mdtools_ops", [source], build_directory=folder, is_python_module=False, extra_cflags=["-O1", "-DTORCH_TARGET_VERSION=0x020a000000000000"])


class RadialNet(nn.Module):
    def __init__(self, bins=16, hidden=32):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.5, 3.0, bins))
        self.mlp = nn.Sequential(nn.Linear(bins, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def features(self, dist, owner, n):
        basis = torch.exp(-4.0 * (dist[:, None] - self.centers) ** 2)
        return torch.zeros(n, self.centers.numel()).index_add_(0, owner, basis)

    def forward(self, dist, owner, n):
        return self.mlp(self.features(dist, owner, n)).sum()


def dense_pairs(coords, cutoff):
    dist = torch.cdist(coords, coords)
    dist.fill_diagonal_(float("inf"))
    return (dist < cutoff).nonzero()


def pair_list(coords, cutoff, box):
    if coords.shape[0] <= 256:
        return dense_pairs(coords, cutoff)
    return torch.ops.mdtools.neighbor_pairs(coords, cutoff, box)


def train(net, steps, cutoff):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        coords = torch.rand(64, 3) * 4.0
        pairs = pair_list(coords, cutoff, 4.0)
        dist = (coords[pairs[:, 0]] - coords[pairs[:, 1]]).norm(dim=1)
        target = (1.0 / (dist + 0.5)).sum() * 0.05
        loss = (net(dist, pairs[:, 0], 64) - target).abs()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}", flush=True)


def coordination(coords, cutoff, box):
    pairs = pair_list(coords, cutoff, box)
    print(f"bulk box: {coords.shape[0]} atoms, {pairs.shape[0]} pairs", flush=True)
    return torch.bincount(pairs[:, 0], minlength=coords.shape[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--atoms", type=int, default=40000)
    ap.add_argument("--cutoff", type=float, default=3.0)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(args.threads)
    start = time.time()
    build_ops(os.path.abspath("mdtools_build"))
    print(f"operators ready after {time.time() - start:.1f} s", flush=True)
    net = RadialNet()
    train(net, args.steps, args.cutoff)
    box = 30.0
    numbers = coordination(torch.rand(args.atoms, 3) * box, args.cutoff, box).float()
    print(f"coordination mean {numbers.mean():.2f} max {numbers.max():.0f}", flush=True)


if __name__ == "__main__":
    main()
