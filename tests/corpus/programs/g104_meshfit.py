"""Fit a deformation network to scanned parts; the element energy is evaluated by a small C++ library."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

ENERGY_CPP = r"""
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
#define ASSERT_FINITE(v, t) if (!std::isfinite(v)) \
    throw std::runtime_error("non-finite value in element " + std::to_string(t));
struct Element { double value; double grad[6]; };
// strain energy of one triangle, rest shape -> deformed shape
static Element evaluate(const float *rest, const float *pos, const int *tri, int t) {
    const int a = tri[3 * t], b = tri[3 * t + 1], c = tri[3 * t + 2];
    auto edge = [](const float *p, int i, int j, double *e) {
        e[0] = p[2 * j] - p[2 * i]; e[1] = p[2 * j + 1] - p[2 * i + 1]; };
    double r1[2], r2[2], d1[2], d2[2];
    edge(rest, a, b, r1); edge(rest, a, c, r2); edge(pos, a, b, d1); edge(pos, a, c, d2);
    const double det = r1[0] * r2[1] - r1[1] * r2[0];
    const double inv[4] = {r2[1] / det, -r2[0] / det, -r1[1] / det, r1[0] / det};
    double j[4] = {d1[0] * inv[0] + d2[0] * inv[2], d1[0] * inv[1] + d2[0] * inv[3],
                   d1[1] * inv[0] + d2[1] * inv[2], d1[1] * inv[1] + d2[1] * inv[3]};
    Element e{};
    const double area = 0.5 * std::fabs(det), diff[4] = {j[0] - 1, j[1], j[2], j[3] - 1};
    for (double d : diff) e.value += area * d * d;
    for (int row = 0; row < 2; row++) {
        const double g1 = 2 * area * (diff[2 * row] * inv[0] + diff[2 * row + 1] * inv[1]);
        const double g2 = 2 * area * (diff[2 * row] * inv[2] + diff[2 * row + 1] * inv[3]);
        e.grad[row] = -(g1 + g2); e.grad[2 + row] = g1; e.grad[4 + row] = g2;
    }
    ASSERT_FINITE(e.value, t);
    for (double g : e.grad) ASSERT_FINITE(g, t);
    return e;
}
extern "C" int energy(const float *rest, const float *pos, const int *tri, int n_tri, int n_vert,
                      double *value, float *grad, char *message, int message_len) {
    try {
        std::vector<Element> results(n_tri);
        #pragma omp parallel for schedule(static)
        for (int t = 0; t < n_tri; t++) results[t] = evaluate(rest, pos, tri, t);
        *value = 0;
        for (int t = 0; t < n_tri; t++) {
            *value += results[t].value;
            for (int i = 0; i < 6; i++) grad[2 * tri[3 * t + i / 2] + i % 2] += results[t].grad[i];
        }
        return 0;
    } catch (const std::exception &e) {
        std::snprintf(message, message_len, "%s", e.what());
        return 1;
    }
}
"""


def build_library():
    library = os.path.join(tempfile.mkdtemp(prefix="energy_"), "libenergy.so")
    flags = ["-O2", "-g", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-x", "c++", "-"]
    subprocess.run(["g++", *flags, "-o", library], input=ENERGY_CPP, text=True, check=True)
    return ctypes.CDLL(library)


class DirichletEnergy(torch.autograd.Function):
    lib = None

    @staticmethod
    def forward(ctx, pos, rest, triangles):
        pos = pos.detach().contiguous()
        grad, value, message = torch.zeros_like(pos), ctypes.c_double(), ctypes.create_string_buffer(256)
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (rest, pos, triangles)]
        status = DirichletEnergy.lib.energy(*pointers, len(triangles), len(pos), ctypes.byref(value),
                                            ctypes.c_void_p(grad.data_ptr()), message, 256)
        if status:
            raise RuntimeError(message.value.decode())
        ctx.save_for_backward(grad)
        return torch.tensor(value.value)

    @staticmethod
    def backward(ctx, upstream):
        return ctx.saved_tensors[0] * upstream, None, None


def scanned_part(index, size=24):
    g = torch.Generator().manual_seed(index)
    axis = torch.linspace(0, 1, size)
    points = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    points = points + 0.2 / size * torch.randn(points.shape, generator=g)
    if index == 7:
        points[size * 19 + 5] = points[size * 19 + 6]
    corner = (torch.arange(size - 1)[:, None] * size + torch.arange(size - 1)).reshape(-1)
    lower = torch.stack([corner, corner + size, corner + 1], 1)
    upper = torch.stack([corner + 1, corner + size, corner + size + 1], 1)
    return points.contiguous(), torch.cat([lower, upper], 1).reshape(-1, 3).int().contiguous()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(1)
    DirichletEnergy.lib = build_library()
    net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    skipped = 0
    for part in range(10):
        rest, triangles = scanned_part(part)
        try:
            for _ in range(args.steps):
                pos = rest + 0.1 * net(rest)
                loss = DirichletEnergy.apply(pos, rest, triangles) + (pos[:, 1] - rest[:, 1] - 0.05).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
        except RuntimeError as error:
            skipped += 1
            print(f"part {part}: skipped ({error})", flush=True)
            continue
        print(f"part {part}: {len(triangles)} triangles, loss {loss.item():.5f}", flush=True)
    print(f"done, {skipped} skipped", flush=True)


if __name__ == "__main__":
    main()
