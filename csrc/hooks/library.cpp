#include "hooks/library.h"

#include "hooks/allocations/external.h"
#include "hooks/distributed/collectives.h"
#include "hooks/distributed/reducer.h"
#include "hooks/execution/optimizer_step.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"
#include "hooks/support/python_errors.h"
#include "hooks/support/torch_version.h"

#include <string>
#include <vector>

using pytracer::hooks::translated;

namespace {

/// Appends a new reference, and takes it. False, with a Python error, when there is none or no memory.
bool append(PyObject* list, PyObject* item) {
  bool appended = item != nullptr && PyList_Append(list, item) == 0;
  Py_XDECREF(item);
  return appended;
}

PyObject* as_tuple(const pytracer::hooks::Bucket& bucket) {
  PyObject* parameters = PyList_New(0);
  if (parameters == nullptr) return nullptr;
  for (const auto& p : bucket.parameters)
    if (!append(parameters, Py_BuildValue("KKK", p.tensor_impl, p.offset_bytes, p.nbytes))) return Py_DECREF(parameters), nullptr;
  return Py_BuildValue("KKKN", bucket.index, bucket.addr, bucket.nbytes, parameters);
}

}  // namespace

const char* pytracer_torch_version(void) { return pytracer::hooks::kTorchVersion; }

PyObject* pytracer_torch_install(int level, PyObject* library_directories) {
  return translated([&]() -> PyObject* {
    std::vector<std::string> directories;
    for (Py_ssize_t i = 0; i < PyList_Size(library_directories); i++) {
      Py_ssize_t nbytes = 0;
      const char* text = PyUnicode_AsUTF8AndSize(PyList_GetItem(library_directories, i), &nbytes);
      if (text == nullptr) return nullptr;
      directories.emplace_back(text, nbytes);
    }
    PyObject* result = PyList_New(0);
    if (result == nullptr) return nullptr;
    for (const auto& [name, reason] : pytracer::hooks::install_all(static_cast<pytracer::hooks::Level>(level), directories))
      if (!append(result, Py_BuildValue("ss", name.c_str(), reason.c_str()))) return Py_DECREF(result), nullptr;
    return result;
  });
}

void pytracer_torch_uninstall(void) {
  translated([] { pytracer::hooks::uninstall_all(); });
}

uint64_t pytracer_torch_call_site(void) { return reinterpret_cast<uint64_t>(pytracer::hooks::call_sites.detailed); }

void pytracer_torch_watch_ranges(void) {
  translated([] { pytracer::hooks::watch_ranges(); });
}

PyObject* pytracer_torch_follow_preexisting(PyObject* list, uint64_t budget_ns) {
  return translated([&] {
    auto seen = pytracer::hooks::follow_preexisting(list, budget_ns);
    return Py_BuildValue("nnn", seen.looked_at, seen.followed, seen.not_followed);
  });
}

PyObject* pytracer_torch_buckets(PyObject* reducer) {
  return translated([&]() -> PyObject* {
    const c10d::Reducer* found = pytracer::hooks::reducer_of(reducer);
    if (found == nullptr) {
      if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "not a Reducer of torch.distributed");
      return nullptr;
    }
    PyObject* result = PyList_New(0);
    if (result == nullptr) return nullptr;
    for (const auto& bucket : pytracer::hooks::buckets_of(*found))
      if (!append(result, as_tuple(bucket))) return Py_DECREF(result), nullptr;
    return result;
  });
}

PyObject* pytracer_torch_optimizer_steps(void) { return pytracer::hooks::optimizer_steps(); }

void pytracer_torch_attend_steps(PyObject* callable) {
  translated([&] { pytracer::hooks::attend_steps(callable != Py_None ? callable : nullptr); });
}

void pytracer_torch_forget_optimizer(const void* optimizer) { pytracer::hooks::forget_optimizer(optimizer); }
