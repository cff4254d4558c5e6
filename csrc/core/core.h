// The C interface of libpytracer_core: what the torch libraries and ctypes call. No torch, no Python, no exceptions.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define PYTRACER_API __attribute__((visibility("default")))

/// Starts recording into `run_directory` (created when missing). Flags: 1 announce a crash on stderr.
/// Returns 0, or an errno with `error` filled. Starting twice is an error (EALREADY); stop first.
PYTRACER_API int pytracer_start(const char* run_directory, uint32_t flags, char* error, size_t error_bytes);

/// Stops: handlers uninstalled, black box marked DISABLED. The mapping remains, since other threads may still write.
PYTRACER_API void pytracer_stop(void);

/// Continues in the same black box after pytracer_stop.
PYTRACER_API void pytracer_resume(void);

/// This process is one of many: when it exits with status 0, the disk blocks of its tables are released (docs/reference/blackbox.md).
PYTRACER_API void pytracer_trim_at_exit(void);

/// The process is about to end with `code`. Not needed where the library is preloaded, nor for exit().
PYTRACER_API void pytracer_note_exit(int code);

/// waitpid() returned a child's pid and status. Not needed where the library is preloaded.
PYTRACER_API void pytracer_note_wait(int pid, int status);

/// Gives the calling thread an alternate signal stack until it ends. For threads that Python starts without preload.
PYTRACER_API void pytracer_arm_thread(void);

/// One line on stderr, once in a run: a part of the recording is missing in every process.
PYTRACER_API void pytracer_announce(const char* text);

PYTRACER_API int pytracer_recording(void);
PYTRACER_API int pytracer_preloaded(void);
/// Whether a crash finds the library of an address without the loader's lock.
PYTRACER_API int pytracer_finds_images(void);
/// Creates the black box now, whatever the budget of the run: a preloaded process has none until there is something to record. 0 when
/// there is none, and nothing can be recorded.
PYTRACER_API int pytracer_create_black_box(void);

/// Empty until the black box is created.
PYTRACER_API const char* pytracer_black_box_path(void);
PYTRACER_API const char* pytracer_directory(void);
PYTRACER_API const char* pytracer_version(void);

/// Appends to the journal; `kind` as schema.Entry. Returns the id, 0 when it did not fit.
PYTRACER_API uint32_t pytracer_journal(uint32_t kind, const void* data, size_t nbytes);

/// Writes a record; `kind` as schema.Record.
PYTRACER_API void pytracer_record(uint32_t kind, const void* payload, size_t nbytes);
PYTRACER_API void pytracer_mark(const char* text, size_t nbytes);

/// `source`: schema FileHeader.step_source. A counted step never overrides pytracer.step().
PYTRACER_API void pytracer_step(int64_t step, uint32_t source);

/// Adds the table of live storages and a context for this thread. 0 when there is no room.
PYTRACER_API int pytracer_open_storages(void);

/// The code that allocated or freed: a journal id, and the place inside it (schema.py, LiveStorage.site_where).
struct pytracer_call_site {
  uint32_t id, where;
};
/// Returns a more detailed call site, at a cost that only large storages are worth.
typedef struct pytracer_call_site (*pytracer_detailed_call_site)(void);

/// `origin`: schema.Origin, one below 16.
PYTRACER_API void pytracer_storage_allocated(const void* addr, size_t nbytes, uint32_t origin, struct pytracer_call_site site);

/// Before the memory is released. `in_detail` is called when a large storage ends; null where `site` is all that is known.
PYTRACER_API void pytracer_storage_freed(const void* addr, struct pytracer_call_site site, pytracer_detailed_call_site in_detail);

/// True when a live storage begins at `addr`, in either table.
PYTRACER_API int pytracer_storage_known(const void* addr);

/// A storage in memory that torch's CPU allocators did not allocate. `identity`: the object that owns the memory, or 0.
/// `preexisting`: it was allocated before recording started. `file` is copied, and may be null.
struct pytracer_external {
  uint64_t addr, nbytes, identity, file_offset;
  const char* file;
  uint32_t origin, site_id, site_where, preexisting;
};
/// Returns a number that is valid until the storage is freed; 0 when there was no room, which is counted.
PYTRACER_API uint64_t pytracer_external_allocated(const struct pytracer_external* birth);

/// Before the memory is released.
PYTRACER_API void pytracer_external_freed(uint64_t number, pytracer_detailed_call_site site);

/// The number of the live one that `identity` owns; 0 when there is none.
PYTRACER_API uint64_t pytracer_external_of(uint64_t identity);

/// Calls of at::TensorMaker::make_tensor go to `to`, with null to torch's own again. 0 when they are not intercepted, because this
/// library is not preloaded. `original` becomes torch's own function, null when there is none.
PYTRACER_API int pytracer_register_make_tensor(void* to, void** original);

/// A storage whose end cannot be observed: it is counted and not recorded.
PYTRACER_API void pytracer_count_unfollowed(void);

/// Adds the ring of collectives. 0 when there is no room.
PYTRACER_API int pytracer_open_collectives(void);

/// A collective was called; `slot` as blackbox::CollectiveSlot. Begins a new epoch. Returns its number, 0 when it is not kept.
PYTRACER_API uint64_t pytracer_collective_scheduled(const void* slot);

/// The oldest recent collective that is scheduled and that `fits`: it starts now. 0 when there is none.
PYTRACER_API uint64_t pytracer_start_scheduled_collective(int (*fits)(const void* slot, const void* argument), const void* argument);

/// `state`: schema.CollectiveState.
PYTRACER_API void pytracer_collective_reached(uint64_t number, uint32_t state);
/// Its call has returned: the backend has it.
PYTRACER_API void pytracer_collective_returned(uint64_t number);
PYTRACER_API void pytracer_count_hook_error(void);

/// An exception that reached the top, by its address, has been written with pytracer_journal(): the core does not write it again.
PYTRACER_API void pytracer_exception_recorded(uint64_t exception);

/// Records where the program asks for its end from now on. With the GIL; a preloaded core has begun with the interpreter.
PYTRACER_API void pytracer_watch_exits(void);

/// Sets the scope of the calling thread to `id`, a journal id of a SCOPE; 0: none. Returns the previous one.
PYTRACER_API uint32_t pytracer_scope(uint32_t id);

/// Adds the ring of FSDP's tensors. 0 when there is no room.
PYTRACER_API int pytracer_open_scoped_tensors(void);

/// `role`: schema.TensorRole; `tensors` as blackbox::ScopedTensor, of which addr and nbytes are read. Begins a new epoch.
PYTRACER_API void pytracer_scoped_tensors(uint32_t role, const void* tensors, size_t count);
/// Guard mode (guard/guard.h). One in `every` storages of `min_bytes` and more; `records` are kept, quarantine included.
struct pytracer_guard_settings {
  uint64_t every, min_bytes, budget_bytes, budget_mappings;
  uint32_t alignment, underrun, records, protection_only;
};

/// Opens the pool of guarded storages, or changes its settings. 0, or an errno with `error` filled.
PYTRACER_API int pytracer_guard_open(const struct pytracer_guard_settings* settings, char* error, size_t error_bytes);

/// No new storages are guarded.
PYTRACER_API void pytracer_guard_pause(void);

/// Whether this kernel has MADV_GUARD_INSTALL: 0, or the errno.
PYTRACER_API int pytracer_guard_markers(void);

/// Bit 0: new storages may be guarded; bit 1: guarded ones exist. Read directly, for every storage.
PYTRACER_API extern int pytracer_guarding;
PYTRACER_API int pytracer_guard_chooses(size_t nbytes);

/// Null when it is not guarded after all. Its result is freed by pytracer_guard_free only; pytracer_guard_owns recognizes it.
PYTRACER_API void* pytracer_guard_allocate(size_t nbytes, struct pytracer_call_site site);
PYTRACER_API int pytracer_guard_owns(const void* at);
PYTRACER_API void pytracer_guard_free(void* at, struct pytracer_call_site site);

/// Looks for CPython and checks the frame offsets: the calling function must be named `function`.
/// 1 trusted, 0 not found, -1 found but the test failed: no Python stacks are recorded.
PYTRACER_API int pytracer_check_python(const char* function);

/// Tests the offsets of CPython's objects: the calling function must hold `object` in a cell, and as the last item of a list and of a
/// tuple, in a dict and as attribute of two objects. 0: not found in all these ways; Python objects are not followed.
PYTRACER_API int pytracer_check_objects(uint64_t object);

/// Probe of the autograd node that runs on the calling thread; see crashsafe/handler/steps.h.
struct pytracer_node {
  const char* name;
  int64_t sequence_nr;
  bool is_python;
  const void* node;
};
PYTRACER_API void pytracer_set_node_probe(bool (*probe)(struct pytracer_node*));

/// Known objects, by which the offsets of torch's private members are found. All are addresses.
struct pytracer_torch_probe {
  uint64_t tensor_type, function_type;            ///< torch._C.TensorBase, torch._C._FunctionBase
  uint64_t object, impl, storage_impl, data;      ///< a tensor, its _cdata, that of its storage, where that begins
  uint64_t numel, offset;                         ///< elements of that tensor, and before its first; both in no other member
  uint64_t leaf_impl, grad_impl;                  ///< a tensor that has a gradient
  uint64_t result_impl, function, next_function;  ///< a tensor, its grad_fn and that one's next: Python objects
  uint64_t saved_data;                            ///< storage that grad_fn keeps for backward
  uint64_t edges;                                 ///< how many edges grad_fn has
  uint64_t rows, columns;                         ///< shape of the first tensor, which is contiguous, of float32
  uint64_t deep_impl;                             ///< a contiguous tensor of 7 dimensions of 2 elements, of float16
  uint64_t undefined_impl;                        ///< the TensorImpl of every undefined tensor; 0: unknown
  uint64_t values;                                ///< 1: the crash handler may look at elements of tensors
};

/// Finds the offsets with the first probe, checks them with the second one. 0: the members were not found; tensors are then not followed,
/// and referrers not searched for.
PYTRACER_API int pytracer_probe_torch_layout(const struct pytracer_torch_probe* learn, const struct pytracer_torch_probe* check);

/// Gives a module or tensor a name, or `slot` (from an earlier call; 0: a new one) to another object. `role`: schema.NameRole, `name`: id of
/// its NAME entry, `parent`: a slot or 0, `flags`: schema.NameSlot; `dict`, `key`: objects, where a buffer is followed, else 0. Returns the
/// slot, 0 when there is no room (counted). Holds the GIL.
PYTRACER_API uint32_t pytracer_name(uint32_t slot, uint32_t role, uint32_t name, uint32_t parent, uint32_t flags, uint64_t object,
                                    uint32_t item_bytes, uint64_t dict, uint64_t key);

/// The object is destroyed, or its identity is no longer known: the slot keeps what it holds about the past.
PYTRACER_API void pytracer_name_gone(uint32_t slot);

/// Updates the addresses of all named tensors. Returns the ns that it took.
PYTRACER_API uint64_t pytracer_refresh_names(void);

/// For tests: the crash handler's step of that number (schema.Step) begins with a fault of its own.
PYTRACER_API void pytracer_break_step(int step);

/// Row of crashsafe/python/python_offsets.inc in use, as struct PythonOffsets; null when none is trusted.
PYTRACER_API const void* pytracer_python_offsets(void);

#ifdef __cplusplus
}
#endif
