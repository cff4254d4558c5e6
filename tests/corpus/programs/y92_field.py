"""Learn the motion of particles in a field. The world is C++ (pybind11), the fields are written in Python."""
import importlib.util
import os
import subprocess
import sysconfig
import tempfile

import torch
from torch import nn

WORLD_CPP = r"""
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <memory>
#include <vector>
namespace py = pybind11;

struct Field {
    virtual ~Field() = default;
    virtual double force(double x) = 0;
};

struct PyField : Field {
    using Field::Field;
    double force(double x) override { PYBIND11_OVERRIDE_PURE(double, Field, force, x); }
};

struct World {
    std::shared_ptr<Field> field;
    std::vector<double> step(const std::vector<double>& xs, double dt) {
        std::vector<double> next;
        for (double x : xs) next.push_back(x + dt * field->force(x));
        return next;
    }
};

PYBIND11_MODULE(world, m) {
    py::class_<Field, PyField, std::shared_ptr<Field>>(m, "Field").def(py::init<>()).def("force", &Field::force);
    py::class_<World>(m, "World").def(py::init<>())
        .def_readwrite("field", &World::field)
        .def("step", &World::step);
}
"""


def build(folder):
    source = os.path.join(folder, "world.cpp")
    library = os.path.join(folder, "world" + sysconfig.get_config_var("EXT_SUFFIX"))
    with open(source, "w") as f:
        f.write(WORLD_CPP)
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    subprocess.run(["g++", "-O0", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-I", include,
                    "-I", sysconfig.get_paths()["include"], source, "-o", library], check=True)
    spec = importlib.util.spec_from_file_location("world", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Motion(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return x + self.net(x)


def make_fields(base):
    class Spring(base):
        def __init__(self, stiffness):
            super().__init__()
            self.stiffness = stiffness

        def force(self, x):
            return -self.stiffness * x

    class DoubleWell(base):
        def __init__(self, depth):
            super().__init__()
            self.depth = depth

        def force(self, x):
            return self.depth * (x - x ** 3)

    return {"spring": Spring, "double-well": DoubleWell}


class Stages:
    def __init__(self, world, fields):
        self.world, self.fields = world, fields

    def start(self, kind, strength):
        self.world.field = self.fields[kind](strength)
        print(f"stage {kind} strength {strength}", flush=True)


def train(world, model, optimizer, steps, batch=64, dt=0.1):
    for _ in range(steps):
        x = torch.rand(batch) * 4 - 2
        target = torch.tensor(world.step(x.tolist(), dt))
        loss = nn.functional.mse_loss(model(x[:, None])[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        native = build(folder)
        world, fields = native.World(), make_fields(native.Field)
        model = Motion()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        spring = fields["spring"](0.5)
        world.field = spring
        print(f"pretrained on the spring: {train(world, model, optimizer, 200):.5f}", flush=True)
        stages = Stages(world, fields)
        for kind, strength in [("double-well", 0.5), ("double-well", 1.0), ("spring", 2.0)]:
            stages.start(kind, strength)
            print(f"  loss {train(world, model, optimizer, 100):.5f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
