// The pybind11 file of the CUDA half: translation, no decisions.
#include "core/core_cuda.h"
#include "cuda/cuda.h"

#include <pybind11/pybind11.h>
#include <torch/version.h>

namespace py = pybind11;

namespace {

// Once per replay: a call by pybind11 would take longer than the work.
PyObject* replayed(PyObject*, PyObject* number) {
  unsigned long value = PyLong_AsUnsignedLong(number);
  if (value == static_cast<unsigned long>(-1) && PyErr_Occurred() != nullptr) return nullptr;
  return PyLong_FromUnsignedLong(pytracer_graph_replayed(static_cast<uint32_t>(value)));
}
PyMethodDef replayed_definition = {"replayed", replayed, METH_O, "A CUDA graph is launched. Returns how many of its inputs are no longer live."};

}  // namespace

PYBIND11_MODULE(_native_cuda, m) {
  m.doc() = "CUDA hooks of pytracer; built for one torch minor version";
  m.attr("TORCH_VERSION") = py::make_tuple(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  m.def("set_call_site", &pytracer::cuda::set_call_site);
  m.def("attach", &pytracer::cuda::attach);
  m.def("follow", &pytracer::cuda::follow);
  m.def("is_deaf", &pytracer::cuda::is_deaf);
  m.def("install_stream_probe", &pytracer::cuda::install_stream_probe);
  m.def("ask_streams", &pytracer::cuda::ask_streams, py::call_guard<py::gil_scoped_release>());
  m.def("lock_streams", &pytracer::cuda::lock_streams, py::call_guard<py::gil_scoped_release>());
  m.def("progress_read", &pytracer_progress_read);
  m.def("begin_capture", &pytracer::cuda::begin_capture);
  m.def("end_capture", &pytracer::cuda::end_capture);
  m.def("reset", &pytracer::cuda::reset);
  m.attr("replayed") = py::reinterpret_steal<py::object>(PyCFunction_New(&replayed_definition, nullptr));
  m.def("name", &pytracer_graph_name);
  m.def("events", &pytracer_device_events);
  m.def("group_scheduled", &pytracer_group_scheduled, py::call_guard<py::gil_scoped_release>());
  m.def("group_reached", &pytracer_group_reached, py::call_guard<py::gil_scoped_release>());
}
