// The CUDA half: what libpytracer_cuda attaches to. Only this folder includes c10/cuda headers.
#pragma once
#ifndef NDEBUG
#error "torch is built with NDEBUG, which is part of at::RecordFunction's layout: build with -DNDEBUG"
#endif
#include "core/core.h"

#include <cstdint>
#include <string>

namespace pytracer::cuda {

/// The call site on this thread, by the function of libpytracer_torch.
pytracer_call_site call_site() noexcept;
void set_call_site(uint64_t function_addr);

/// Follows torch's caching allocator on all devices. Empty, or why not. After CUDA was initialized: attached earlier, the
/// tracker is accepted in silence and never called. Once per process: it cannot be detached, so recording is switched by
/// `follow`.
std::string attach();
void follow(bool on) noexcept;

/// An allocator has allocated blocks on a device whose context exists, although no event was ever recorded: the tracker does
/// not work. Reads only; allocates nothing.
bool is_deaf();

/// From now on records contain the current CUDA stream of their thread.
void install_stream_probe();

/// From now on every operator is recorded with its call site, CUDA stream and device memory (level ops), or no longer.
void follow_operators(bool follow);
/// From now on launches of kernels are followed, or no longer: for records of operators, which get the name of the kernel that they
/// launched last, and during a capture.
enum class KernelsFor : uint32_t { kOperators = 1, kCapture = 2 };
void follow_kernels(KernelsFor who, bool follow);
/// The name's id of the kernel that this thread has launched last, since the last call of this; 0: none is known.
uint32_t take_kernel() noexcept;
/// The same as of operators for a kernel that Python launches without an operator, e.g. Triton's. `storages`: `count` device addresses that it is
/// given.
void record_launch(const char* name, const uint64_t* storages, uint32_t count) noexcept;

/// From now on what the CUDA driver prints of the first assertions that fail in kernels is recorded. No effect unless libcuda is loaded.
void watch_assertions();

/// Queries every known CUDA stream: idle, busy, or failed. Waits for nothing, and queries nothing while a CUDA graph is being captured,
/// which a query could invalidate. Returns the cudaError_t of a stream that failed; 0: none did.
int ask_streams();

/// Keeps ask_streams() away while captures begin and end.
void lock_streams(bool lock);

/// A capture on the current stream begins: what its kernels use is collected until end_capture. 0: not recorded.
uint32_t begin_capture(uint64_t pool_graph, uint64_t pool_number);
void end_capture(uint32_t number, bool captured, uint64_t pool_graph, uint64_t pool_number);
/// The graph that is being captured now; 0: none.
uint32_t capturing() noexcept;

void reset(uint32_t number);

}  // namespace pytracer::cuda
