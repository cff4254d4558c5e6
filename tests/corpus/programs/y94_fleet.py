"""Search learning rates for a price model: candidates are scored in C++ by a Python function."""
import importlib.util
import os
import subprocess
import sysconfig
import tempfile

import torch
from torch import nn

FLEET_CPP = r"""
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>
namespace py = pybind11;
using Score = std::function<double(double)>;

class Fleet {
    std::mt19937 rng;
    int threads;
    std::vector<std::pair<double, double>> seen;

public:
    Fleet(unsigned seed, int threads) : rng(seed), threads(threads) {}

    std::vector<double> propose(int n) {
        double centre = seen.empty() ? -2.5 : seen.front().second;
        std::normal_distribution<double> around(centre, seen.empty() ? 0.8 : 0.2);
        std::vector<double> points(n);
        for (double& p : points) p = around(rng);
        return points;
    }

    double evaluate(const std::vector<double>& points, const Score& score) {
        std::vector<double> value(points.size());
        if ((int)points.size() < 2 * threads) {
            for (size_t i = 0; i < points.size(); i++) value[i] = score(points[i]);
        } else {
            std::atomic<size_t> next{0};
            std::vector<std::thread> crew;
            for (int t = 0; t < threads; t++)
                crew.emplace_back([&] { for (size_t i; (i = next++) < points.size();) value[i] = score(points[i]); });
            for (auto& member : crew) member.join();
        }
        for (size_t i = 0; i < points.size(); i++) seen.emplace_back(value[i], points[i]);
        std::sort(seen.begin(), seen.end());
        return seen.front().first;
    }

    double best() const { return seen.front().second; }
};

PYBIND11_MODULE(fleet, m) {
    py::class_<Fleet>(m, "Fleet").def(py::init<unsigned, int>())
        .def("propose", &Fleet::propose)
        .def("evaluate", &Fleet::evaluate)
        .def("best", &Fleet::best);
}
"""


def build(folder):
    source = os.path.join(folder, "fleet.cpp")
    library = os.path.join(folder, "fleet" + sysconfig.get_config_var("EXT_SUFFIX"))
    with open(source, "w") as f:
        f.write(FLEET_CPP)
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    subprocess.run(["g++", "-O0", "-g1", "-std=c++17", "-pthread", "-shared", "-fPIC", "-fvisibility=hidden",
                    "-I", include, "-I", sysconfig.get_paths()["include"], source, "-o", library], check=True)
    spec = importlib.util.spec_from_file_location("fleet", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PriceData:
    def __init__(self, rows=512, columns=12):
        g = torch.Generator().manual_seed(8)
        self.x = torch.randn(rows, columns, generator=g)
        self.y = self.x @ torch.randn(columns, 1, generator=g) + 0.1 * torch.randn(rows, 1, generator=g)


class Trial:
    def __init__(self, data, steps):
        self.data, self.steps, self.count = data, steps, 0

    def __call__(self, log_rate):
        self.count += 1
        model = nn.Linear(self.data.x.shape[1], 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=10.0 ** log_rate)
        for _ in range(self.steps):
            loss = nn.functional.mse_loss(model(self.data.x), self.data.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        fleet = build(folder).Fleet(11, 2)
        trial = Trial(PriceData(), steps=40)
        for generation, size in enumerate([2, 3, 3, 8, 8]):
            loss = fleet.evaluate(fleet.propose(size), trial)
            print(f"generation {generation} trials {trial.count} best {loss:.4f}", flush=True)
        print(f"learning rate {10.0 ** fleet.best():.5f}", flush=True)


if __name__ == "__main__":
    main()
