// What identifies this process and its host and costs system calls; and whether a directory is our user's alone.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>

struct stat;

namespace pytracer::crashsafe {

/// The name of this host, and the same as part of a file's name.
inline constexpr size_t kHostBytes = 64;
void read_host(char* host, size_t room) noexcept;
void read_host_as_name(char* host, size_t room) noexcept;

/// Members of the header that cost system calls: written when the file is created, since many processes never have one.
void complete_identity(blackbox::FileHeader& header) noexcept;

/// Owned by our user, and writable for no other: its contents are ours. Without `strictly` the group may write.
bool is_ours_alone(const struct stat& found, bool strictly) noexcept;
bool is_ours_alone(int descriptor, bool strictly) noexcept;

}  // namespace pytracer::crashsafe
