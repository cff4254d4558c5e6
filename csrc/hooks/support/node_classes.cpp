#include "hooks/support/node_classes.h"

#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/support/intern.h"

#include <torch/csrc/autograd/function.h>  // node.h since torch 2.12
#include <torch/csrc/autograd/python_function.h>

#include <atomic>
#include <cstring>
#include <typeinfo>

namespace pytracer::hooks {
namespace {

using blackbox::EntryKind;

InternMap<12> nodes;  // vtable, or Python class -> NODE
std::atomic<uint64_t> py_node_vtable{0};

uint64_t vtable_of(const torch::autograd::Node& node) {
  uint64_t vtable;
  memcpy(&vtable, &node, sizeof vtable);
  return vtable;
}

// The member `obj` until 2.11, where pyobj() is the base class's and null; behind pyobj() since.
template <class N>
PyObject* python_object(const N& node) {
  if constexpr (requires { node.obj; })
    return node.obj;
  else
    return node.pyobj();
}

}  // namespace

// Classes written in Python share one vtable, which is no key.
uint32_t intern_node(const torch::autograd::Node& node) {
  uint64_t key = vtable_of(node);
  if (uint32_t id = nodes.find(key)) return id;
  bool is_python = false;
  const char* name = node_class(node, is_python);
  if (is_python) {
    key = reinterpret_cast<uint64_t>(name);  // tp_name lives as long as its class
    if (uint32_t id = nodes.find(key)) return id;
  }
  uint32_t id = pytracer_journal(static_cast<uint32_t>(EntryKind::kNode), name, strlen(name));
  if (id != 0) nodes.add(key, id);
  return id;
}

const char* node_class(const torch::autograd::Node& node, bool& is_python) noexcept {
  const char* name = typeid(node).name();
  uint64_t vtable = vtable_of(node);
  uint64_t known = py_node_vtable.load(std::memory_order_relaxed);
  if (known == 0 && strcmp(name, "N5torch8autograd6PyNodeE") == 0) py_node_vtable.store(known = vtable, std::memory_order_relaxed);
  is_python = vtable == known;
  if (!is_python) return name;
  PyObject* object = python_object(static_cast<const torch::autograd::PyNode&>(node));
  return object != nullptr ? Py_TYPE(object)->tp_name : "PyNode";
}

}  // namespace pytracer::hooks
