// Reads of memory that may not be mapped. The handler turns a fault inside copy_bytes into a failed read.
#pragma once
#include <ucontext.h>
#include <cstddef>
#include <cstdint>

namespace pytracer::crashsafe {

/// Copies `nbytes` from `from`; false when some byte is not readable (then `to` is partly written).
/// In the crash handler, and elsewhere while a CheckedReads lives: a fault needs our handler for SIGSEGV and SIGBUS, unblocked.
bool read_bytes(void* to, uint64_t from, size_t nbytes) noexcept;

/// A debugger stops at every fault: when one is attached, the reads that follow are system calls instead.
void choose_reads() noexcept;

/// Reads of this thread while the program runs. A C library that installs its own handler after pytracer.enable() (UCX, Open MPI), and a
/// thread that blocks every signal, would make a failed read end the process. So the kernel is queried first: three system calls,
/// 0.5 us each where a copied word takes 0.05 and a word by process_vm_readv 4 (measured on one machine; reading the addresses of 1,000
/// tensors takes 8,000 words). Where a fault would not reach us, the reads that follow use process_vm_readv. The remaining risk is a
/// handler that another thread installs during the lifetime of this object. Preserves errno.
class [[nodiscard]] CheckedReads {
 public:
  CheckedReads() noexcept;
  ~CheckedReads() noexcept;
  CheckedReads(const CheckedReads&) = delete;
  CheckedReads& operator=(const CheckedReads&) = delete;

  /// False: neither way works, for example where a container's seccomp filter refuses process_vm_readv. Nothing may be read.
  bool possible() const noexcept { return possible_; }

 private:
  int errno_;
  bool before_, possible_ = true;
};

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
