// The system calls of guard mode: they make pages fault, and make them memory again. Every result is checked.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::guard {

/// Address space without access. `huge`: huge pages may be used where it becomes memory. Null when refused.
char* reserve(size_t nbytes, bool huge) noexcept;

/// The same at `at`; false when something lies there, or it is refused.
bool reserve_at(char* at, size_t nbytes, bool huge) noexcept;

/// MADV_GUARD_INSTALL on a page of its own: 0 when this kernel has it, else the errno.
int try_markers() noexcept;

/// Reserved pages become memory in which every page faults until its marker is removed. Undone on failure.
bool open_marked(char* at, size_t nbytes) noexcept;
bool set_markers(char* at, size_t nbytes) noexcept;
bool remove_markers(char* at, size_t nbytes) noexcept;

/// Reserved pages become memory: two mappings more, until they are reserved again.
bool unprotect(char* at, size_t nbytes, bool huge) noexcept;

/// Back to reserved; their memory and their page tables are released.
bool seal(char* at, size_t nbytes, bool huge) noexcept;

/// Releases memory where `seal` was refused; the pages stay accessible.
void drop(char* at, size_t nbytes) noexcept;

}  // namespace pytracer::guard
