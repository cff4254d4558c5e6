// The one pybind11 file: translation, no decisions.
#include "core/core.h"
#include "hooks/allocations/external.h"
#include "hooks/distributed/collectives.h"
#include "hooks/distributed/reducer.h"
#include "hooks/execution/optimizer_step.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace py = pybind11;

PYBIND11_MODULE(_native, m) {
  m.doc() = "torch hooks of pytracer; built for one torch minor version";
  m.attr("TORCH_VERSION") = py::make_tuple(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  m.def(
      "install",
      [](int level, const std::vector<std::string>& library_directories) {
        return pytracer::hooks::install_all(static_cast<pytracer::hooks::Level>(level), library_directories);
      },
      py::arg("level"), py::arg("library_directories"));
  // For _native_cuda, which calls it under the allocator's lock: the address of a function, no Python.
  m.def("call_site_address", [] { return reinterpret_cast<uint64_t>(&pytracer::hooks::detailed_call_site); });
  m.def("uninstall", &pytracer::hooks::uninstall_all);
  if (PyModule_AddFunctions(m.ptr(), pytracer::hooks::optimizer_step_functions) != 0) throw py::error_already_set();
  m.def("watch_ranges", &pytracer::hooks::watch_ranges);
  m.def(
      "follow_preexisting",
      [](const py::list& objects, uint64_t budget_ns) {
        auto seen = pytracer::hooks::follow_preexisting(PySequence_Fast_ITEMS(objects.ptr()), objects.size(), budget_ns);
        return py::make_tuple(seen.looked_at, seen.followed, seen.not_followed);
      },
      py::arg("objects"), py::arg("budget_ns"));
  m.def("buckets", [](const std::shared_ptr<c10d::Reducer>& reducer) {
    py::list out;
    for (const auto& bucket : pytracer::hooks::buckets_of(*reducer)) {
      py::list parameters;
      for (const auto& p : bucket.parameters) parameters.append(py::make_tuple(p.tensor_impl, p.offset_bytes, p.nbytes));
      out.append(py::make_tuple(bucket.index, bucket.addr, bucket.nbytes, parameters));
    }
    return out;
  });
}
