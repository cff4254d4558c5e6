// The C interface of libpytracer_cuda, for pytracer/record/cuda/library.py: translation, no decisions. cuda.h describes the functions.
// One build for each minor version of torch serves every CPython. All with the GIL held, and an error is Python's.
#pragma once
#include "core/core.h"
#include "hooks/support/python.h"

#include <stdint.h>

extern "C" {

/// "2.14": the minor version of torch that the library was built for.
PYTRACER_API const char* pytracer_cuda_torch_version(void);
/// `function`: what pytracer_torch_call_site() returned.
PYTRACER_API void pytracer_cuda_set_call_site(uint64_t function);
/// A str: empty, or why the caching allocator is not followed.
PYTRACER_API PyObject* pytracer_cuda_attach(void);
PYTRACER_API void pytracer_cuda_follow(int on);
PYTRACER_API int pytracer_cuda_is_deaf(void);
PYTRACER_API void pytracer_cuda_install_stream_probe(void);
PYTRACER_API void pytracer_cuda_follow_operators(int follow);
PYTRACER_API void pytracer_cuda_record_launch(const char* name, const uint64_t* storages, uint32_t count);
PYTRACER_API void pytracer_cuda_watch_assertions(void);
PYTRACER_API int pytracer_cuda_ask_streams(void);
PYTRACER_API void pytracer_cuda_lock_streams(int lock);
PYTRACER_API uint32_t pytracer_cuda_begin_capture(uint64_t pool_graph, uint64_t pool_number);
PYTRACER_API void pytracer_cuda_end_capture(uint32_t number, int captured, uint64_t pool_graph, uint64_t pool_number);
PYTRACER_API void pytracer_cuda_reset(uint32_t number);
/// A builtin function of Python, for once per replay: replayed(number of the CUDA graph) returns how many of its inputs are not live.
PYTRACER_API PyObject* pytracer_cuda_replayed(void);

}  // extern "C"
