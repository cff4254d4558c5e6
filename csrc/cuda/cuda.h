// The CUDA half: what _native_cuda attaches to. Only here are c10/cuda headers included.
#pragma once
#ifndef NDEBUG
#error "torch is built with NDEBUG, which is part of at::RecordFunction's layout: build with -DNDEBUG"
#endif
#include "core/core.h"

#include <cstdint>
#include <string>

namespace pytracer::cuda {

/// Who runs on this thread, from _native: SITE's id, and the place in it.
pytracer_who who() noexcept;
void set_who(uint64_t function_addr);

/// Follows torch's caching allocator on all devices. Empty, or why not. After CUDA was initialized: attached earlier, the
/// tracker is accepted in silence and never called. Once per process: there is no way back, so recording is switched by
/// `follow`.
std::string attach();
void follow(bool on) noexcept;

/// Blocks that an allocator has handed out on a device whose context exists, although no event ever came: the tracker does
/// not work. Looks only; allocates nothing.
bool is_deaf();

/// The stream that this thread works on is told from now on.
void install_stream_probe();

/// Asks the device about every known stream: idle, busy, or failed. Waits for nothing, and asks nothing while a CUDA graph is
/// being captured, which a question could spoil. Returns the cudaError_t of a stream that failed; 0: none did.
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
