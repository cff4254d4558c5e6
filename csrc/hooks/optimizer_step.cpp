#include "optimizer_step.h"

#include "../recorder/core.h"

#include <time.h>
#include <cstdint>
#include <unordered_set>

namespace pytracer::hooks {
namespace {

// A step of a small model is short, and the code of a Python hook has left the caches by the next one: in Python, counting and
// asking whether there is anything to do took 15 us of a step of 440 us; here 1.
PyObject* attend = nullptr;          // callable: what it is given is an optimizer, what it returns is when to be called again
PyObject* set_eval_frame = nullptr;  // of dynamo's, or None: what `attend` calls is not for torch.compile to compile
int64_t due_ns = 0;
std::unordered_set<const void*> known;  // optimizers that were attended to, and live
const void* counted = nullptr;          // a GAN has two, and the steps of one of them are enough
int64_t steps = 0;

constexpr uint32_t kCounted = 2;  // FileHeader.step_source

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// An error of ours must not become the step's.
void forget_error() {
  PyErr_Clear();
  pytracer_count_hook_error();
}

PyObject* switch_eval_frame(PyObject* to) {
  if (set_eval_frame == Py_None) return nullptr;
  PyObject* before = PyObject_CallOneArg(set_eval_frame, to);
  if (before == nullptr) forget_error();
  return before;
}

void attend_to(PyObject* optimizer) {
  known.insert(optimizer);
  PyObject* before = switch_eval_frame(Py_None);
  PyObject* next = PyObject_CallOneArg(attend, optimizer);
  if (next != nullptr) due_ns = PyLong_AsLongLong(next);
  if (PyErr_Occurred() != nullptr) forget_error();
  Py_XDECREF(next);
  if (before != nullptr) Py_XDECREF(switch_eval_frame(before));
  Py_XDECREF(before);
}

PyObject* optimizer_stepped(PyObject*, PyObject* optimizer) {
  if (attend == nullptr) Py_RETURN_NONE;
  if (known.count(optimizer) == 0 || now_ns() >= due_ns) attend_to(optimizer);
  if (counted == nullptr) counted = optimizer;
  if (optimizer == counted) pytracer_step(++steps, kCounted);
  Py_RETURN_NONE;
}

PyObject* attend_steps(PyObject*, PyObject* args) {
  PyObject *callable = nullptr, *switcher = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &callable, &switcher)) return nullptr;
  Py_XSETREF(attend, callable != Py_None ? Py_NewRef(callable) : nullptr);
  Py_XSETREF(set_eval_frame, Py_NewRef(switcher));
  known.clear();
  counted = nullptr;
  due_ns = steps = 0;
  Py_RETURN_NONE;
}

PyObject* forget_optimizer(PyObject*, PyObject* address) {
  const void* gone = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred() != nullptr) return nullptr;
  known.erase(gone);
  if (counted == gone) counted = nullptr;
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef optimizer_step_functions[] = {
    {"optimizer_stepped", optimizer_stepped, METH_O, nullptr},
    {"attend_steps", attend_steps, METH_VARARGS, nullptr},
    {"forget_optimizer", forget_optimizer, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace pytracer::hooks
