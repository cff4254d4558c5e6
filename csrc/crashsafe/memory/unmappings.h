// What the program gave back by munmap(): the latest ranges of this address space, which a child between vfork and exec shares.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Before the call, since another thread may fault in the hole at once. Callable wherever munmap() is. Returns the number of the record.
uint64_t note_unmapping(uint64_t addr, uint64_t nbytes, uint64_t caller, uint32_t stack_id) noexcept;

/// The call failed: the memory is still there.
void forget_unmapping(uint64_t number) noexcept;

/// In a forked child without its parent's journal: the stacks of what is recorded are not known in it.
void forget_unmapping_stacks() noexcept;

/// Crash step: the latest one around the address, in the crash header.
void write_unmapping(uint64_t addr) noexcept;

}  // namespace pytracer::crashsafe
