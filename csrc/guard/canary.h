// Known bytes in the part of its pages that a storage does not use: writes there do not fault.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::guard {

/// Bytes beside a storage that have changed.
struct Damage {
  int64_t offset = 0;   // of the first one, from the storage's base
  uint32_t nbytes = 0;  // from the first to the last one; 0: none
  uint8_t bytes[16] = {};
};

void fill_canary(char* from, const char* to) noexcept;

/// `base`: of the storage that the bytes lie beside.
Damage check_canary(const char* from, const char* to, const char* base) noexcept;

}  // namespace pytracer::guard
