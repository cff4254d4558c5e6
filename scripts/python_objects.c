/* Prints one row of csrc/crashsafe/python/python_objects.inc for the CPython whose headers it is compiled with. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#if PY_MINOR_VERSION >= 11
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#if PY_MINOR_VERSION >= 14
#include "internal/pycore_interpframe.h"
#else
#include "internal/pycore_frame.h"
#endif
#include "internal/pycore_object.h"
#else
#include <frameobject.h>
/* Objects/dict-common.h, which is not installed. */
struct _dictkeysobject {
  Py_ssize_t dk_refcnt, dk_size;
  void* dk_lookup;
  Py_ssize_t dk_usable, dk_nentries;
  char dk_indices[];
};
#endif

#define O(field, value) printf(" ." #field " = %ld,", (long)(value))

int main(void) {
  printf("{.minor = %d,", PY_MINOR_VERSION);
#if PY_MINOR_VERSION >= 11
  O(f_locals, offsetof(_PyInterpreterFrame, localsplus));
  O(f_globals, offsetof(_PyInterpreterFrame, f_globals));
  O(co_names, offsetof(PyCodeObject, co_localsplusnames));
  O(co_cells, -1);
  O(co_free, -1);
#else
  O(f_locals, offsetof(PyFrameObject, f_localsplus));
  O(f_globals, offsetof(PyFrameObject, f_globals));
  O(co_names, offsetof(PyCodeObject, co_varnames));
  O(co_cells, offsetof(PyCodeObject, co_cellvars));
  O(co_free, offsetof(PyCodeObject, co_freevars));
#endif
  O(size, offsetof(PyVarObject, ob_size));
  O(tuple_items, offsetof(PyTupleObject, ob_item));
  O(list_items, offsetof(PyListObject, ob_item));
  O(cell_value, offsetof(PyCellObject, ob_ref));
  O(int_digits, sizeof(PyVarObject));
  O(type_name, offsetof(PyTypeObject, tp_name));
  O(type_base, offsetof(PyTypeObject, tp_base));
  O(type_flags, offsetof(PyTypeObject, tp_flags));
  O(type_size, offsetof(PyTypeObject, tp_basicsize));
  O(type_dict, offsetof(PyTypeObject, tp_dictoffset));
  O(type_keys, offsetof(PyHeapTypeObject, ht_cached_keys));
  O(dict_keys, offsetof(PyDictObject, ma_keys));
  O(dict_values, offsetof(PyDictObject, ma_values));
  O(keys_count, offsetof(struct _dictkeysobject, dk_nentries));
  O(keys_indices, offsetof(struct _dictkeysobject, dk_indices));
#if PY_MINOR_VERSION >= 11
  O(keys_log2_bytes, offsetof(PyDictKeysObject, dk_log2_index_bytes));
  O(keys_kind, offsetof(PyDictKeysObject, dk_kind));
  O(keys_size, -1);
  O(values_first, offsetof(PyDictValues, values));
#else
  O(keys_log2_bytes, -1);
  O(keys_kind, -1);
  O(keys_size, offsetof(struct _dictkeysobject, dk_size));
  O(values_first, 0);
#endif
#if PY_MINOR_VERSION >= 13
  O(managed_dict, MANAGED_DICT_OFFSET);
  O(managed_values, 0);
  O(inline_values_flag, Py_TPFLAGS_INLINE_VALUES);
  O(values_valid, offsetof(PyDictValues, valid));
#elif PY_MINOR_VERSION == 12
  O(managed_dict, -3 * (long)sizeof(PyObject*));
  O(managed_values, -3 * (long)sizeof(PyObject*));
  O(inline_values_flag, 0);
  O(values_valid, -1);
#elif PY_MINOR_VERSION == 11
  O(managed_dict, -3 * (long)sizeof(PyObject*));
  O(managed_values, -4 * (long)sizeof(PyObject*));
  O(inline_values_flag, 0);
  O(values_valid, -1);
#else
  O(managed_dict, 0);
  O(managed_values, 0);
  O(inline_values_flag, 0);
  O(values_valid, -1);
#endif
#if PY_MINOR_VERSION >= 11
  O(managed_dict_flag, Py_TPFLAGS_MANAGED_DICT);
#else
  O(managed_dict_flag, 0);
#endif
  printf("},\n");
  return 0;
}
