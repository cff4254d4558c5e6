import tempfile

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <pybind11/pybind11.h>

namespace py = pybind11;

py::object last(py::object batch) {
  static py::object stored = batch;
  py::object previous = stored;
  stored = batch;
  return previous;
}

PYBIND11_MODULE(batch_memory, m) {
  m.def("last", &last);
}
"""


def build():
    return load_inline("batch_memory", SOURCE, no_implicit_headers=True, extra_cflags=["-O1", "-g"],
                       build_directory=tempfile.mkdtemp(prefix="batch_memory_"))


def main():
    memory = build()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(40):
        x = torch.randn(32, 20)
        y = (x.sum(dim=1) > 0).long()
        old_x, old_y = memory.last([x, y])
        inputs, labels = torch.cat([x, old_x]), torch.cat([y, old_y])
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"finished, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
