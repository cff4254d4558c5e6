// The C interface of libpytracer_core for libpytracer_cuda: device memory, CUDA graphs. No CUDA in it: addresses are numbers.
#pragma once
#include "core/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a caching allocator did. `site_id`, `site_where`: as in pytracer_call_site.
struct pytracer_device_event {
  uint64_t addr, nbytes, stream;
  uint32_t pool_graph, pool_number, device;
  uint32_t site_id, site_where;
};
enum pytracer_device_action {
  PYTRACER_BLOCK_ALLOCATED = 1,
  PYTRACER_BLOCK_AWAITED,  ///< freed by the program, still owned
  PYTRACER_BLOCK_FREED,
  PYTRACER_SEGMENT_ALLOCATED,
  PYTRACER_SEGMENT_MAPPED,
  PYTRACER_SEGMENT_GONE,   ///< released or unmapped, as a whole or in part
  PYTRACER_OUT_OF_MEMORY,  ///< addr: bytes that the driver had left; nbytes: what was asked for
};

/// Adds the tables. 0 when there is no room.
PYTRACER_API int pytracer_open_device_memory(void);

/// Any thread, also under the allocator's lock: takes a lock of its own for less than a microsecond, calls no other code.
PYTRACER_API void pytracer_device_acted(enum pytracer_device_action action, const struct pytracer_device_event* event);

/// Memory allocated before the first event. `state`: blackbox::BlockState. No effect when the table has the address, or had it
/// at any time since pytracer_expect_known_blocks(1).
PYTRACER_API void pytracer_known_block(const struct pytracer_device_event* event, uint32_t state);
PYTRACER_API void pytracer_known_segment(const struct pytracer_device_event* event, int expandable);
PYTRACER_API void pytracer_expect_known_blocks(int expect);

/// Events so far; 0: none.
PYTRACER_API uint32_t pytracer_device_events(void);

/// A capture begins: the number of its CUDA graph, 0 when there is no room.
PYTRACER_API uint32_t pytracer_graph_begin(const struct pytracer_device_event* capture);

/// The captured work reads or writes the block at `addr`. No effect when it was allocated during the capture or in its pool.
/// `kernel`: the name's id of the kernel that does, 0 when it is not known.
PYTRACER_API void pytracer_graph_input(uint32_t number, uint64_t addr, uint32_t kernel);
PYTRACER_API void pytracer_graph_collective(uint32_t number);

/// `captured`: 0 when the capture failed. Its pool is not known earlier.
PYTRACER_API void pytracer_graph_end(uint32_t number, int captured, uint32_t pool_graph, uint32_t pool_number);

/// A CUDA graph is launched. Returns how many of its inputs are no longer live.
PYTRACER_API uint32_t pytracer_graph_replayed(uint32_t number);
PYTRACER_API void pytracer_graph_reset(uint32_t number, uint32_t site_id, uint32_t site_where);
PYTRACER_API void pytracer_graph_name(uint32_t number, uint32_t name_id);

/// The current CUDA stream of the calling thread, and whether it is captured; null where that is not known.
struct pytracer_stream {
  uint64_t stream;
  uint32_t device;
  uint32_t graph;  ///< number of the graph that it is captured into; 0: none
};
PYTRACER_API void pytracer_set_stream_probe(int (*probe)(struct pytracer_stream*));
PYTRACER_API int pytracer_current_stream(struct pytracer_stream* out);

/// The CUDA half records operators while `follow`, of threads that have a current CUDA stream: others need not.
PYTRACER_API void pytracer_follow_device_operators(int follow);
PYTRACER_API int pytracer_device_operators_followed(void);

/// A CUDA stream, as the device answered; `state`: blackbox::StreamState. UNKNOWN only adds it.
PYTRACER_API void pytracer_stream_state(uint32_t device, uint64_t stream, uint32_t state, int32_t error);

/// The `index`th known stream. 0 when there are fewer.
PYTRACER_API int pytracer_known_stream(uint32_t index, struct pytracer_stream* out);

/// The operator that this thread recorded last has launched the kernel whose name is that journal entry. No effect if it recorded something else
/// since.
PYTRACER_API void pytracer_kernel_launched(uint32_t name_id);

/// The progress of the devices was just queried, with success.
PYTRACER_API void pytracer_progress_read(void);

/// Progress of the collectives of a process group, by the backend's own records: all up to `sequence_nr` reached `state`
/// (blackbox::CollectiveState).
PYTRACER_API void pytracer_group_reached(const char* group, uint64_t sequence_nr, uint32_t state);

/// The number of the last collective of a group that was called; 0: none, or the call has not returned.
PYTRACER_API uint64_t pytracer_group_scheduled(const char* group);

#ifdef __cplusplus
}
#endif
