// CPython by its stable interface: one build of the hooks serves every CPython. Internals are read at offsets
// (python_frames.h).
#pragma once
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

// Not in the limited API, and the same in every CPython since 3.10.
extern "C" {
PyInterpreterState* PyInterpreterState_Main(void);
int PyGILState_Check(void);
extern PyTypeObject PyCode_Type;
}
