// The C face of libpytracer_core: what _native and ctypes call. No torch, no Python, no exceptions.
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

/// Stops: handlers uninstalled, box marked DISABLED. The mapping stays, since other threads may still write.
PYTRACER_API void pytracer_stop(void);

/// Goes on in the same box after pytracer_stop.
PYTRACER_API void pytracer_resume(void);

/// This process is one of many: when it ends well, its box gives its tables back (docs/reference/blackbox.md).
PYTRACER_API void pytracer_keep_little(void);

/// The process is about to end with `code`. Seen without asking where the library is preloaded, and at exit().
PYTRACER_API void pytracer_note_exit(int code);

/// Gives the calling thread an alternate signal stack until it ends. For threads that Python starts without preload.
PYTRACER_API void pytracer_arm_thread(void);

PYTRACER_API int pytracer_recording(void);
PYTRACER_API int pytracer_preloaded(void);
/// Makes the box now, whatever the budget of the run: a preloaded process has none until there is something to record. 0 when there is
/// none, and nothing can be recorded.
PYTRACER_API int pytracer_make_box(void);

/// Empty until the box is made.
PYTRACER_API const char* pytracer_box_path(void);
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

/// Who allocated or freed: a journal id, and the place inside it (schema.py, LiveStorage.who_where).
struct pytracer_who {
  uint32_t id, where;
};
/// For what is large, detail is worth its cost.
typedef struct pytracer_who (*pytracer_who_in_detail)(void);

/// `origin`: schema.Origin, one below 16.
PYTRACER_API void pytracer_storage_allocated(const void* addr, size_t nbytes, uint32_t origin, struct pytracer_who who);

/// Before the memory is given back. `in_detail` is asked when a large storage ends; null where `who` is all that is known.
PYTRACER_API void pytracer_storage_freed(const void* addr, struct pytracer_who who, pytracer_who_in_detail in_detail);

/// True when a live storage begins at `addr`, in either table.
PYTRACER_API int pytracer_storage_known(const void* addr);

/// A storage in memory that torch's CPU allocators did not hand out. `identity`: the object that owns the memory, or 0.
/// `older`: it was there before the recording began. `file` is copied, and may be null.
struct pytracer_foreign {
  uint64_t addr, nbytes, identity, file_offset;
  const char* file;
  uint32_t origin, who_id, who_where, older;
};
/// Returns a number that is valid until the storage is freed; 0 when there was no room, which is counted.
PYTRACER_API uint64_t pytracer_foreign_allocated(const struct pytracer_foreign* birth);

/// Before the memory is given back.
PYTRACER_API void pytracer_foreign_freed(uint64_t number, pytracer_who_in_detail who);

/// The number of the live one that `identity` owns; 0 when there is none.
PYTRACER_API uint64_t pytracer_foreign_of(uint64_t identity);

/// Calls of at::TensorMaker::make_tensor go to `to`, with null to torch's own again. 0 when they do not pass here, because this
/// library is not preloaded. `torchs_own` becomes torch's own function, null when there is none.
PYTRACER_API int pytracer_register_make_tensor(void* to, void** torchs_own);

/// A storage was seen whose end could not be: it is counted and not recorded.
PYTRACER_API void pytracer_count_unfollowed(void);

/// Adds the ring of collectives. 0 when there is no room.
PYTRACER_API int pytracer_open_collectives(void);

/// A collective was called; `slot` as blackbox::CollectiveSlot. Begins a new epoch. Returns its number, 0 when it is not kept.
PYTRACER_API uint64_t pytracer_collective_scheduled(const void* slot);

/// The oldest recent collective that is scheduled and that `fits`: it has started now. 0 when there is none.
PYTRACER_API uint64_t pytracer_start_scheduled_collective(int (*fits)(const void* slot, const void* argument), const void* argument);

/// `state`: schema.CollectiveState.
PYTRACER_API void pytracer_collective_reached(uint64_t number, uint32_t state);
/// Its call has returned: the backend has it.
PYTRACER_API void pytracer_collective_returned(uint64_t number);
PYTRACER_API void pytracer_count_hook_error(void);

/// Makes `id`, a journal id of a SCOPE, what the calling thread is busy with; 0: nothing. Returns the one before.
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

/// Bit 0: new storages may be guarded; bit 1: guarded ones exist. Read without asking, for every storage.
PYTRACER_API extern int pytracer_guarding;
PYTRACER_API int pytracer_guard_chooses(size_t nbytes);

/// Null when it is not guarded after all. What it gives is freed by pytracer_guard_free only, which pytracer_guard_owns tells.
PYTRACER_API void* pytracer_guard_allocate(size_t nbytes, struct pytracer_who who);
PYTRACER_API int pytracer_guard_owns(const void* at);
PYTRACER_API void pytracer_guard_free(void* at, struct pytracer_who who);

/// Looks for CPython and checks the frame offsets: the calling function must be named `function`.
/// 1 trusted, 0 not found, -1 found but the test failed: Python stacks will be left out.
PYTRACER_API int pytracer_check_python(const char* function);

/// Tries the offsets of CPython's objects: the calling function must hold `object` in a cell, and as the last item of a list and of a
/// tuple, in a dict and as attribute of two objects. 0: not found in all these ways; Python objects will not be followed.
PYTRACER_API int pytracer_check_objects(uint64_t object);

/// Probe of the autograd node that runs on the calling thread; see crashsafe/handler/handler.h.
struct pytracer_node {
  const char* name;
  int64_t sequence_nr;
  bool is_python;
  const void* node;
};
PYTRACER_API void pytracer_set_node_probe(bool (*probe)(struct pytracer_node*));

/// Known objects, by which the places of torch's private members are found. All are addresses.
struct pytracer_torch_probe {
  uint64_t tensor_type, function_type;            ///< torch._C.TensorBase, torch._C._FunctionBase
  uint64_t object, impl, storage_impl, data;      ///< a tensor, its _cdata, that of its storage, where that begins
  uint64_t numel, offset;                         ///< elements of that tensor, and before its first; both in no other member
  uint64_t leaf_impl, grad_impl;                  ///< a tensor that has a gradient
  uint64_t result_impl, function, next_function;  ///< a tensor, its grad_fn and that one's next: Python objects
  uint64_t saved_data;                            ///< storage that grad_fn keeps for backward
};

/// Learns from the first probe, checks with the second one. 0: the members are not where they were looked for; tensors are then
/// not followed, and holders are not looked for.
PYTRACER_API int pytracer_learn_torch(const struct pytracer_torch_probe* learn, const struct pytracer_torch_probe* check);

/// Gives a module or tensor a name, or `slot` (from an earlier call; 0: a new one) to another one. `role`: schema.NameRole, `name`: id of
/// its NAME entry, `parent`: a slot or 0, `flags`: schema.NameSlot; `dict`, `key`: objects, where a buffer is followed, else 0. Returns the
/// slot, 0 when there is no room (counted). Holds the GIL.
PYTRACER_API uint32_t pytracer_name(uint32_t slot, uint32_t role, uint32_t name, uint32_t parent, uint32_t flags, uint64_t object,
                                    uint32_t item_bytes, uint64_t dict, uint64_t key);

/// The object is gone, or nobody knows any more what it is: what the slot says about the past stays.
PYTRACER_API void pytracer_name_gone(uint32_t slot);

/// Looks where all named tensors lie now. Returns the ns that it took.
PYTRACER_API uint64_t pytracer_refresh_names(void);

/// For tests: the crash handler's step of that number (schema.Step) begins with a fault of its own.
PYTRACER_API void pytracer_break_step(int step);

/// Row of crashsafe/python/python_offsets.inc in use, as struct PythonOffsets; null when none is trusted.
PYTRACER_API const void* pytracer_python_offsets(void);

#ifdef __cplusplus
}
#endif
