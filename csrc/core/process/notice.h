// The one line about a process that is not recorded: once per run, and never where a launcher can say it.
#pragma once
#include "crashsafe/file/create_file.h"

namespace pytracer::recorder {

/// Writes it to stderr, unless a process of the same run did, or this one was started by one that is told the same.
void tell_unrecorded(const char* directory, const crashsafe::Failure& failure) noexcept;

}  // namespace pytracer::recorder
