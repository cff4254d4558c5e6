// At the border to Python: errors of C++ as errors of Python, for functions that ctypes calls with the GIL held.
#pragma once
#include "hooks/support/python.h"

#include <exception>

namespace pytracer::hooks {

/// What `body` returns. An exception becomes Python's RuntimeError, and the result is zero or null.
template <class Body>
auto translated(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type");
  }
  return decltype(body())();
}

/// For its lifetime other threads may run Python.
class WithoutGil {
 public:
  WithoutGil() noexcept : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace pytracer::hooks
