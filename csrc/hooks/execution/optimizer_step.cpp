#include "hooks/execution/optimizer_step.h"

#include "core/core.h"
#include "crashsafe/platform/sys.h"

#include <cstdint>
#include <unordered_set>
#include <utility>

namespace pytracer::hooks {
namespace {

// A step of a small model is short, and a Python hook has left the CPU's caches by the next one: counting in Python, and checking
// whether there is anything to do, took 15 us of a step of 440 us; here 1 to 5, most of it for the tensors' addresses.
PyObject* attend = nullptr;  // callable: gets an optimizer, returns when to call it again
int64_t due_ns = 0;
std::unordered_set<const void*> known;  // live optimizers that `attend` was called for
const void* counted = nullptr;          // a GAN has two, and the steps of one of them are enough
int64_t steps = 0;

constexpr uint32_t kCounted = 2;  // FileHeader.step_source

// An internal error must not become an error of the step.
void forget_error() {
  PyErr_Clear();
  pytracer_count_hook_error();
}

void attend_to(PyObject* optimizer) {
  known.insert(optimizer);
  PyObject* next = PyObject_CallFunctionObjArgs(attend, optimizer, nullptr);
  if (next != nullptr) due_ns = PyLong_AsLongLong(next);
  if (PyErr_Occurred() != nullptr) forget_error();
  Py_XDECREF(next);
}

int stepped(PyObject*, PyObject* optimizer, void*) {
  if (attend == nullptr || optimizer == nullptr) return 0;
  if (known.count(optimizer) == 0 || static_cast<int64_t>(crashsafe::now_ns()) >= due_ns) attend_to(optimizer);
  if (counted == nullptr) counted = optimizer;
  if (optimizer == counted) pytracer_step(++steps, kCounted);
  return 0;
}

PyObject* nothing(PyObject*, void*) { Py_RETURN_NONE; }

}  // namespace

// An attribute whose setter does the work. A call of a native function would break dynamo's graph, and fail where that is forbidden
// (fullgraph=True); setting an attribute is a side effect that dynamo knows, and repeats after each run of the compiled code.
PyObject* optimizer_steps() {
  static PyGetSetDef attributes[] = {{"last", nothing, stepped, nullptr, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_getset, attributes}, {0, nullptr}};
  static PyType_Spec spec = {"pytracer.OptimizerSteps", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* type = PyType_FromSpec(&spec);
  PyObject* made = type != nullptr ? PyObject_CallObject(type, nullptr) : nullptr;
  Py_XDECREF(type);
  return made;
}

void attend_steps(PyObject* callable) {
  Py_XINCREF(callable);
  PyObject* before = std::exchange(attend, callable);
  Py_XDECREF(before);
  known.clear();
  counted = nullptr;
  due_ns = steps = 0;
}

void forget_optimizer(const void* optimizer) {
  known.erase(optimizer);
  if (counted == optimizer) counted = nullptr;
}

}  // namespace pytracer::hooks
