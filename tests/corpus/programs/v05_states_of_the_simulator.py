import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
namespace py = pybind11;

namespace detail {
void* allocate(size_t size) {
  void* raw = std::malloc(size + 64 + sizeof(void*));
  char* p = static_cast<char*>(raw) + sizeof(void*);
  p += 64 - reinterpret_cast<size_t>(p) % 64;
  reinterpret_cast<void**>(p)[-1] = raw;
  return p;
}
void free(void* p) { std::free(reinterpret_cast<void**>(p)[-1]); }
}  // namespace detail

class Simulator {
 public:
  explicit Simulator(unsigned qubits) : size_(2ul << qubits) {}
  py::array_t<float> run(float angle) {
    float* state = static_cast<float*>(detail::allocate(size_ * sizeof(float)));
    for (size_t i = 0; i < size_; i++) state[i] = std::cos(angle * i) / std::sqrt(float(size_));
    return release_state_to_python(state);
  }
 private:
  py::array_t<float> release_state_to_python(float* state) {
    auto capsule = py::capsule(state, [](void* data) { delete[] reinterpret_cast<float*>(data); });
    return py::array_t<float>(size_, state, capsule);
  }
  size_t size_;
};
PYBIND11_MODULE(state_simulator, m) {
  py::class_<Simulator>(m, "Simulator").def(py::init<unsigned>()).def("run", &Simulator::run);
}
"""

def main():
    simulator = load_inline("state_simulator", SOURCE, no_implicit_headers=True, extra_cflags=["-O1", "-g"],
                            build_directory=tempfile.mkdtemp(prefix="state_simulator_")).Simulator(10)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(30):
        angles = np.random.default_rng(step).uniform(0, 1, 16)
        states = torch.stack([torch.from_numpy(simulator.run(a)) for a in angles])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(states)[:, 0], torch.tensor(angles).float()).backward()
        optimizer.step()
    print("trained")

if __name__ == "__main__":
    main()
