#include "cuda/library.h"

#include "core/core_cuda.h"
#include "cuda/cuda.h"
#include "hooks/support/python_errors.h"
#include "hooks/support/torch_version.h"

#include <string>

using pytracer::hooks::translated;
using pytracer::hooks::WithoutGil;

namespace {

// Called by ctypes it would take longer than its work.
PyObject* replayed(PyObject*, PyObject* number) {
  unsigned long value = PyLong_AsUnsignedLong(number);
  if (value == static_cast<unsigned long>(-1) && PyErr_Occurred() != nullptr) return nullptr;
  return PyLong_FromUnsignedLong(pytracer_graph_replayed(static_cast<uint32_t>(value)));
}
PyMethodDef replayed_definition = {"replayed", replayed, METH_O, "A CUDA graph is launched. Returns how many of its inputs are not live any more."};

}  // namespace

const char* pytracer_cuda_torch_version(void) { return pytracer::hooks::kTorchVersion; }

void pytracer_cuda_set_call_site(uint64_t function) { pytracer::cuda::set_call_site(function); }

PyObject* pytracer_cuda_attach(void) {
  return translated([] { return PyUnicode_FromString(pytracer::cuda::attach().c_str()); });
}

void pytracer_cuda_follow(int on) { pytracer::cuda::follow(on != 0); }

int pytracer_cuda_is_deaf(void) {
  return translated([] { return static_cast<int>(pytracer::cuda::is_deaf()); });
}

void pytracer_cuda_install_stream_probe(void) {
  translated([] { pytracer::cuda::install_stream_probe(); });
}

void pytracer_cuda_follow_operators(int follow) {
  translated([&] { pytracer::cuda::follow_operators(follow != 0); });
}

void pytracer_cuda_record_launch(const char* name, const uint64_t* storages, uint32_t count) { pytracer::cuda::record_launch(name, storages, count); }

void pytracer_cuda_watch_assertions(void) {
  translated([] { pytracer::cuda::watch_assertions(); });
}

int pytracer_cuda_ask_streams(void) {
  return translated([] {
    WithoutGil released;
    return pytracer::cuda::ask_streams();
  });
}

void pytracer_cuda_lock_streams(int lock) {
  translated([&] {
    WithoutGil released;
    pytracer::cuda::lock_streams(lock != 0);
  });
}

uint32_t pytracer_cuda_begin_capture(uint64_t pool_graph, uint64_t pool_number) {
  return translated([&] { return pytracer::cuda::begin_capture(pool_graph, pool_number); });
}

void pytracer_cuda_end_capture(uint32_t number, int captured, uint64_t pool_graph, uint64_t pool_number) {
  translated([&] { pytracer::cuda::end_capture(number, captured != 0, pool_graph, pool_number); });
}

void pytracer_cuda_reset(uint32_t number) {
  translated([&] { pytracer::cuda::reset(number); });
}

PyObject* pytracer_cuda_replayed(void) { return PyCFunction_New(&replayed_definition, nullptr); }
