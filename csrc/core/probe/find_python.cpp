#include "core/probe/find_python.h"

#include "crashsafe/python/python_objects.h"
#include "crashsafe/python/python_stack.h"

#include <dlfcn.h>
#include <cstdlib>
#include <cstring>

extern "C" const char _PyRuntime[] __attribute__((weak));

namespace pytracer::core {
namespace {

uint64_t address_of(const char* symbol) { return reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, symbol)); }

crashsafe::PythonTypes find_types() {
  return {.list = address_of("PyList_Type"),
          .tuple = address_of("PyTuple_Type"),
          .dict = address_of("PyDict_Type"),
          .cell = address_of("PyCell_Type"),
          .module = address_of("PyModule_Type"),
          .type = address_of("PyType_Type"),
          .text = address_of("PyUnicode_Type"),
          .integer = address_of("PyLong_Type"),
          .truth = address_of("PyBool_Type"),
          .real = address_of("PyFloat_Type"),
          .nothing = address_of("_Py_NoneStruct")};
}

}  // namespace

// A weak symbol: dlsym() allocates a message when it finds nothing, which would be the first allocation of most processes.
bool python_is_linked() noexcept { return _PyRuntime != nullptr; }

int find_python() noexcept {
  if (const auto* known = crashsafe::python_offsets()) return known->minor;
  void* runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
  void* type = dlsym(RTLD_DEFAULT, "PyCode_Type");
  auto version = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (runtime == nullptr || type == nullptr || version == nullptr) return 0;
  const char* text = version();
  if (strncmp(text, "3.", 2) != 0 || strstr(text, "free-threading") != nullptr) return 0;  // other objects and frames
  int minor = atoi(text + 2);
  crashsafe::trust_python_objects(minor, find_types());
  return crashsafe::trust_python(minor, reinterpret_cast<uint64_t>(runtime), reinterpret_cast<uint64_t>(type)) ? minor : 0;
}

}  // namespace pytracer::core
