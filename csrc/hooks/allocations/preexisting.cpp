// Storages allocated before recording started: those of all tensors and storages that Python knows.
#include "core/core.h"
#include "crashsafe/platform/sys.h"
#include "hooks/allocations/external.h"

#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

namespace pytracer::hooks {
namespace {

constexpr size_t kBetweenLooks = 1024;  // at the clock

// By type alone: isinstance() reads __class__, which may run the object's code.
bool is_a(PyObject* object, PyObject* type) {
  return type != nullptr && PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(type)) != 0;
}

Followed follow_object(PyObject* object) {
  if (is_a(object, THPVariableClass)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    return tensor.defined() && tensor.has_storage() ? follow(tensor.storage(), true) : Followed::kNoMemory;
  }
  if (is_a(object, reinterpret_cast<PyObject*>(THPStorageClass)) && THPStorage_Unpack(object).unsafeGetStorageImpl() != nullptr)
    return follow(THPStorage_Unpack(object), true);
  return Followed::kNoMemory;
}

}  // namespace

// Functions of the stable interface and THPVariable, whose layout is the same below every CPython: this file, too, is built once.
Preexisting follow_preexisting(PyObject* list, uint64_t budget_ns) {
  Preexisting result{};
  auto count = static_cast<size_t>(PyList_Size(list));
  uint64_t begin = crashsafe::now_ns();
  for (; result.looked_at < count; result.looked_at++) {
    if (result.looked_at % kBetweenLooks == 0 && crashsafe::now_ns() - begin > budget_ns) break;
    Followed followed = follow_object(PyList_GetItem(list, static_cast<Py_ssize_t>(result.looked_at)));
    result.followed += followed == Followed::kYes;
    result.not_followed += followed == Followed::kNo;
    if (followed == Followed::kNo) pytracer_count_unfollowed();
  }
  return result;
}

}  // namespace pytracer::hooks
