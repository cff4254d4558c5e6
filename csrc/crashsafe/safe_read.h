// Reads of memory that may not be there. A fault inside copy_bytes is turned into a failed read by the handler.
#pragma once
#include <ucontext.h>
#include <cstddef>
#include <cstdint>

namespace pytracer::crashsafe {

/// Copies `nbytes` from `from`; false when some byte is not readable (then `to` is partly written).
/// Needs our handler for SIGSEGV and SIGBUS, unblocked.
bool read_bytes(void* to, uint64_t from, size_t nbytes) noexcept;

/// A debugger stops at every fault: when one is attached, the reads that follow ask the kernel instead.
void choose_reads() noexcept;

/// Reads one value; `to` keeps its value on failure.
template <class T>
bool read_value(T& to, uint64_t from) noexcept {
  T value;
  if (!read_bytes(&value, from, sizeof value)) return false;
  to = value;
  return true;
}

/// Handler side: when the fault lies inside copy_bytes, moves the context to its failure exit.
bool recover_read(ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
