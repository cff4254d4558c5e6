// The C interface of libpytracer_torch, for pytracer/record/torch/library.py: translation, no decisions. One build for each minor version of
// torch serves every CPython. All with the GIL held.
#pragma once
#include "core/core.h"
#include "hooks/support/python.h"

#include <stdint.h>

extern "C" {

/// "2.13", or the identity of one torch: what the library was built for.
PYTRACER_API const char* pytracer_torch_version(void);

/// Installs the hooks. `library_directories`, a list of str: files below them are not the user's own. A list of (name, why it is not
/// installed), the reason empty when it is; null: a Python error.
PYTRACER_API PyObject* pytracer_torch_install(int level, PyObject* library_directories);
PYTRACER_API void pytracer_torch_uninstall(void);

/// A pytracer_detailed_call_site for the CUDA half, which calls it under the allocator's lock: no Python.
PYTRACER_API uint64_t pytracer_torch_call_site(void);

/// This process has a process group: from now on its named ranges are read, which show collectives and FSDP's units.
PYTRACER_API void pytracer_torch_watch_ranges(void);

/// Adds the storages of tensors in a list: (looked at, followed, not followed).
PYTRACER_API PyObject* pytracer_torch_follow_preexisting(PyObject* list, uint64_t budget_ns);

/// Buckets of a DDP Reducer in order of reduction: a list of (index, address, bytes, [(_cdata, offset, bytes) of each parameter]).
PYTRACER_API PyObject* pytracer_torch_buckets(PyObject* reducer);

/// See hooks/execution/optimizer_step.h. `callable`: or None.
PYTRACER_API PyObject* pytracer_torch_optimizer_steps(void);
PYTRACER_API void pytracer_torch_attend_steps(PyObject* callable);
PYTRACER_API void pytracer_torch_forget_optimizer(const void* optimizer);

}  // extern "C"
