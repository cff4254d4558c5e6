"""Lane detector head with a native line-sampling op; the op is built while the backbone warms up."""
import argparse
import subprocess
import sys
import time
from pathlib import Path

import os, signal
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

BUILD = Path("build/line_sampling").resolve(); below = lambda pid: [pid] + [p for c in open(f"/proc/{pid}/task/{pid}/children").read().split() for p in below(int(c))]
OP_SOURCE = r"""
#include <torch/extension.h>

torch::Tensor line_sampling(torch::Tensor features, torch::Tensor lines, int64_t points) {
  auto start = lines.narrow(1, 0, 2).unsqueeze(1);
  auto stop = lines.narrow(1, 2, 2).unsqueeze(1);
  auto steps = torch::linspace(0, 1, points, features.options()).view({1, points, 1});
  auto grid = (start + (stop - start) * steps).unsqueeze(1);
  auto picked = torch::nn::functional::grid_sample(
      features, grid, torch::nn::functional::GridSampleFuncOptions().align_corners(true));
  return picked.squeeze(2);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("line_sampling", &line_sampling, "sample features along lines");
}
"""


def load_line_sampling():
    BUILD.mkdir(parents=True, exist_ok=True)
    source = BUILD / "line_sampling.cpp"
    if not source.exists():
        source.write_text(OP_SOURCE)
    return load(name="line_sampling", sources=[str(source)], build_directory=str(BUILD), extra_cflags=["-O3"])


class Prebuild:
    """Builds the op in a helper process so that the compiler runs beside the warm-up."""

    def __init__(self):
        command = [sys.executable, __file__, "--prebuild"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.started = time.monotonic()

    def finish(self, budget):
        remaining = budget - (time.monotonic() - self.started)
        try:
            self.process.wait(timeout=max(remaining, 0))
        except subprocess.TimeoutExpired:
            helper = below(self.process.pid)
            for process in helper:
                os.kill(process, signal.SIGKILL)
            self.process.wait()
        print(f"helper ended after {time.monotonic() - self.started:.0f} s", flush=True)


class LaneNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                                      nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.presence = nn.Linear(width, 1)
        self.score = nn.Linear(width * 8, 1)

    def forward(self, images):
        features = self.backbone(images)
        return self.presence(features.mean((2, 3))).squeeze(-1), features


def make_batch(generator, size=16):
    images = torch.rand(size, 1, 32, 32, generator=generator)
    present = (torch.rand(size, generator=generator) > 0.5).float()
    images[present.bool(), :, :, 14:18] += 1.0
    lines = torch.rand(size, 4, generator=generator) * 2 - 1
    return images, present, lines


def warm_up(model, optimizer, generator, steps):
    for step in range(steps):
        images, present, _ = make_batch(generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(images)[0], present)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 20 == 0:
            print(f"warm-up step {step + 1} loss {loss.item():.4f}", flush=True)


def train_lines(model, optimizer, generator, op, steps):
    for step in range(steps):
        images, present, lines = make_batch(generator)
        picked = op.line_sampling(model(images)[1], lines, 8)
        loss = nn.functional.binary_cross_entropy_with_logits(model.score(picked.flatten(1)).squeeze(-1), present)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"line training done, loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prebuild", action="store_true")
    parser.add_argument("--prebuild-budget", type=float, default=6.0)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    if args.prebuild:
        print("building", flush=True)
        load_line_sampling()
        return

    torch.manual_seed(1)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    model = LaneNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    prebuild = Prebuild()
    warm_up(model, optimizer, generator, args.steps)
    prebuild.finish(args.prebuild_budget)
    op = load_line_sampling()
    train_lines(model, optimizer, generator, op, args.steps)


if __name__ == "__main__":
    main()
