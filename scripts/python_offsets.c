/* Prints one row of csrc/crashsafe/python/python_offsets.inc for the CPython whose headers it is compiled with. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"
#if PY_MINOR_VERSION >= 14
#include "internal/pycore_frame.h"
#include "internal/pycore_interpframe.h"
#elif PY_MINOR_VERSION >= 11
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif
#ifdef Py_GIL_DISABLED
#error "a free-threaded build: its objects and frames are laid out differently, and have no row"
#endif

#define O(field, value) printf(" ." #field " = %ld,", (long)(value))

int main(void) {
  printf("{.minor = %d,", PY_MINOR_VERSION);
  O(rt_interp, offsetof(_PyRuntimeState, interpreters.head));
  O(interp_next, offsetof(PyInterpreterState, next));
#if PY_MINOR_VERSION >= 11
  O(interp_threads, offsetof(PyInterpreterState, threads.head));
#else
  O(interp_threads, offsetof(PyInterpreterState, tstate_head));
#endif
  O(ts_next, offsetof(PyThreadState, next));
  O(ts_thread_id, offsetof(PyThreadState, thread_id));
#if PY_MINOR_VERSION >= 13
  O(ts_frame, offsetof(PyThreadState, current_frame));
  O(cframe_frame, -1);
#elif PY_MINOR_VERSION >= 11
  O(ts_frame, offsetof(PyThreadState, cframe));
  O(cframe_frame, offsetof(_PyCFrame, current_frame));
#else
  O(ts_frame, offsetof(PyThreadState, frame));
  O(cframe_frame, -1);
#endif
#if PY_MINOR_VERSION >= 13
  O(f_code, offsetof(_PyInterpreterFrame, f_executable));
  O(f_instr, offsetof(_PyInterpreterFrame, instr_ptr));
#elif PY_MINOR_VERSION >= 11
  O(f_code, offsetof(_PyInterpreterFrame, f_code));
  O(f_instr, offsetof(_PyInterpreterFrame, prev_instr));
#else
  O(f_code, offsetof(PyFrameObject, f_code));
  O(f_instr, offsetof(PyFrameObject, f_lasti));
#endif
#if PY_MINOR_VERSION >= 11
  O(f_back, offsetof(_PyInterpreterFrame, previous));
  O(f_owner, offsetof(_PyInterpreterFrame, owner));
  O(generator_owner, FRAME_OWNED_BY_GENERATOR);
  O(co_firsttraceable, offsetof(PyCodeObject, _co_firsttraceable));
  O(co_code, offsetof(PyCodeObject, co_code_adaptive));
  O(co_qualname, offsetof(PyCodeObject, co_qualname));
#else
  O(f_back, offsetof(PyFrameObject, f_back));
  O(f_owner, -1);
  O(generator_owner, -1);
  O(co_firsttraceable, -1);
  O(co_code, -1);
  O(co_qualname, offsetof(PyCodeObject, co_name));
#endif
  /* Frames without Python code have this owner or a greater one. */
#if PY_MINOR_VERSION >= 14
  O(first_shim_owner, FRAME_OWNED_BY_INTERPRETER);
#elif PY_MINOR_VERSION >= 12
  O(first_shim_owner, FRAME_OWNED_BY_CSTACK);
#else
  O(first_shim_owner, 127);
#endif
  O(co_filename, offsetof(PyCodeObject, co_filename));
  O(co_firstlineno, offsetof(PyCodeObject, co_firstlineno));
  O(co_linetable, offsetof(PyCodeObject, co_linetable));
  O(ob_type, offsetof(PyObject, ob_type));
  O(bytes_size, offsetof(PyVarObject, ob_size));
  O(bytes_data, offsetof(PyBytesObject, ob_sval));
  O(str_len, offsetof(PyASCIIObject, length));
  O(str_state, offsetof(PyASCIIObject, state));
  O(str_ascii, sizeof(PyASCIIObject));
  O(str_compact, sizeof(PyCompactUnicodeObject));
  O(ts_exc_info, offsetof(PyThreadState, exc_info));
  O(exc_value, offsetof(_PyErr_StackItem, exc_value));
  O(exc_previous, offsetof(_PyErr_StackItem, previous_item));
  O(exc_args, offsetof(PyBaseExceptionObject, args));
  O(exc_traceback, offsetof(PyBaseExceptionObject, traceback));
  O(tb_next, offsetof(PyTracebackObject, tb_next));
  O(tb_frame, offsetof(PyTracebackObject, tb_frame));
  O(tb_lasti, offsetof(PyTracebackObject, tb_lasti));
#if PY_MINOR_VERSION >= 11
  O(frame_object_frame, offsetof(PyFrameObject, f_frame));
#else
  O(frame_object_frame, -1);
#endif
  O(tuple_size, offsetof(PyVarObject, ob_size));
  O(tuple_items, offsetof(PyTupleObject, ob_item));
  O(type_name, offsetof(PyTypeObject, tp_name));
  O(type_flags, offsetof(PyTypeObject, tp_flags));
  printf("},\n");
  return 0;
}
