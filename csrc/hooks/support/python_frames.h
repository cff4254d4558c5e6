// Frames of the interpreter on the calling thread, read in place. Inline: a storage's call site is one of them.
#pragma once
#include "crashsafe/python/python_stack.h"
#include "hooks/support/python.h"

#include <cstdint>
#include <cstring>

namespace pytracer::hooks {

/// The line that a frame executes, by code object and instruction.
struct Frame {
  uint64_t code = 0;
  uint32_t offset = 0;
  explicit operator bool() const { return code != 0; }
};

template <class T>
inline T load(uint64_t base, long offset) {
  T value;
  memcpy(&value, reinterpret_cast<const char*>(base) + offset, sizeof value);
  return value;
}

constexpr crashsafe::PythonOffsets kRows[] = {
#include "crashsafe/python/python_offsets.inc"
};
consteval crashsafe::PythonOffsets row_of(int minor) {
  for (const auto& row : kRows)
    if (row.minor == minor) return row;
  return {};
}

/// The frames of CPython 3.`Minor`. The code exists once for each version, which is chosen at the start (call_site.cpp): offsets that are
/// constants in the code save a cache line of data.
template <int Minor>
struct Interpreter {
  static constexpr crashsafe::PythonOffsets kAt = row_of(Minor);
  static_assert(kAt.minor == Minor, "no row in python_offsets.inc");

  /// The innermost frame of a thread, which must be the calling one; 0: none.
  static uint64_t first_frame(const PyThreadState* state) {
    auto frame = load<uint64_t>(reinterpret_cast<uint64_t>(state), kAt.ts_frame);
    return kAt.cframe_frame >= 0 && frame != 0 ? load<uint64_t>(frame, kAt.cframe_frame) : frame;
  }

  static uint64_t next_frame(uint64_t frame) { return load<uint64_t>(frame, kAt.f_back); }

  /// False for frames without Python code.
  static Frame look(uint64_t frame) {
    auto code = crashsafe::untagged(load<uint64_t>(frame, kAt.f_code));
    if (code == 0) return {};
    if constexpr (Minor >= 12) {
      if (load<char>(frame, kAt.f_owner) >= kAt.first_shim_owner) return {};
    }
    if constexpr (Minor >= 13) {
      if (load<const void*>(code, kAt.ob_type) != &PyCode_Type) return {};
    }
    if constexpr (Minor >= 11)
      return {code, static_cast<uint32_t>(load<uint64_t>(frame, kAt.f_instr) - (code + static_cast<uint64_t>(kAt.co_code)))};
    else
      return {code, static_cast<uint32_t>(load<int32_t>(frame, kAt.f_instr)) * 2};
  }

  /// The same for a frame that may not be the innermost one: false, too, for those that Python hides. It has one between the caller of a
  /// class and __init__ (3.13). Costs two more loads.
  static Frame look_outwards(uint64_t frame) {
    Frame found = look(frame);
    if constexpr (Minor >= 11) {
      if (found && load<char>(frame, kAt.f_owner) != kAt.generator_owner &&
          static_cast<int32_t>(found.offset) < load<int32_t>(found.code, kAt.co_firsttraceable) * 2)
        return {};
    }
    return found;
  }

  /// From `at` outwards; `at` becomes the frame that was found, or 0.
  static Frame look_from(uint64_t& at) {
    for (; at != 0; at = next_frame(at))
      if (Frame frame = look_outwards(at)) return frame;
    return {};
  }
};

/// An interpreter whose frames cannot be read: there are none.
template <>
struct Interpreter<0> {
  static uint64_t first_frame(const PyThreadState*) { return 0; }
  static uint64_t next_frame(uint64_t) { return 0; }
  static Frame look(uint64_t) { return {}; }
  static Frame look_outwards(uint64_t) { return {}; }
  static Frame look_from(uint64_t&) { return {}; }
};

}  // namespace pytracer::hooks
