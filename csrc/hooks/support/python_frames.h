// Frames of the interpreter on the calling thread, read in place. Inline: a storage's call site is one of them.
#pragma once
#include "crashsafe/python/python_stack.h"

#include <Python.h>

#include <cstdint>
#include <cstring>

namespace pytracer::hooks {

// This extension is built for one CPython: its offsets are constants in the code, which saves a cache line of data.
constexpr crashsafe::PythonOffsets kRows[] = {
#include "crashsafe/python/python_offsets.inc"
};
consteval crashsafe::PythonOffsets row_of(int minor) {
  for (const auto& row : kRows)
    if (row.minor == minor) return row;
  return {};
}
constexpr crashsafe::PythonOffsets kPython = row_of(PY_MINOR_VERSION);

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

inline uint64_t next_frame(uint64_t frame) { return load<uint64_t>(frame, kPython.f_back); }

/// False for frames without Python code.
inline Frame look(uint64_t frame) {
  auto code = load<uint64_t>(frame, kPython.f_code) & ~1ull;
  if (code == 0) return {};
#if PY_VERSION_HEX >= 0x030C0000
  if (load<char>(frame, kPython.f_owner) == kPython.owner_cstack) return {};
#endif
#if PY_VERSION_HEX >= 0x030D0000
  if (!PyCode_Check(reinterpret_cast<PyObject*>(code))) return {};
#endif
#if PY_VERSION_HEX >= 0x030B0000
  return {code, static_cast<uint32_t>(load<uint64_t>(frame, kPython.f_instr) - (code + static_cast<uint64_t>(kPython.co_code)))};
#else
  return {code, static_cast<uint32_t>(load<int32_t>(frame, kPython.f_instr)) * 2};
#endif
}

/// From `at` outwards; `at` becomes the frame that was found, or 0.
inline Frame look_from(uint64_t& at) {
  for (; at != 0; at = next_frame(at))
    if (Frame frame = look(at)) return frame;
  return {};
}

}  // namespace pytracer::hooks
