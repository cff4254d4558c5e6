// Python frames of all threads, read from CPython's own structures by checked reads: no GIL, no Python API.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Offsets of one CPython minor version; printed by scripts/gen_python_offsets.py from that version's headers.
struct PythonOffsets {
  int minor;
  long rt_interp, interp_next, interp_threads, ts_next, ts_thread_id, ts_frame, cframe_frame, f_code, f_instr, f_back, f_owner, generator_owner,
      co_firsttraceable, co_code, co_qualname, first_shim_owner, co_filename, co_firstlineno, co_linetable, ob_type, bytes_size, bytes_data, str_len,
      str_state, str_ascii, str_compact, ts_exc_info, exc_value, exc_previous, exc_args, exc_traceback, tb_next, tb_frame, tb_lasti,
      frame_object_frame, tuple_size, tuple_items, type_name, type_flags;
};

/// The object of a reference in a frame, 0 for none: 3.14 keeps tags in the lowest bits. Objects of every CPython are aligned to more.
constexpr uint64_t untagged(uint64_t reference) { return reference & ~3ull; }

/// A frame of a walk.
struct FrameView {
  uint64_t code;
  int32_t offset;
  uint64_t frame;  ///< the interpreter's own
};

/// Uses the row of this minor version from now on. `runtime` is the address of _PyRuntime, `type_of_code` that of
/// PyCode_Type. False when no row fits.
bool trust_python(int minor, uint64_t runtime, uint64_t type_of_code) noexcept;

/// The address of _PyRuntime; 0 before.
uint64_t python_runtime() noexcept;

/// The row in use, or null.
const PythonOffsets* python_offsets() noexcept;

/// Stops using the offsets: a self-test failed.
void distrust_python() noexcept;

/// Frames of the calling thread, innermost first, without touching the black box. Returns how many were found.
/// Works outside the handler, too, on threads whose frames do not move meanwhile.
int own_frames(FrameView* out, int limit) noexcept;

/// The characters of a str object, in place.
struct PythonText {
  uint64_t data;
  uint32_t nbytes, kind;  ///< kind: bytes per character
};

/// False when it is not a str, or not readable. Of a long one only the end: that of a path is more useful than its beginning.
bool python_text(uint64_t object, PythonText& out) noexcept;

/// Compares the name of a code object with ASCII text.
bool code_is_named(uint64_t code, const char* name) noexcept;

/// Crash step: writes PYTHON_THREADS and PYTHON_FRAMES, the crashed thread first, and what that thread or the main one was handling.
void write_python_stacks() noexcept;

}  // namespace pytracer::crashsafe
