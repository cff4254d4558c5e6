// The notice about a process that is not recorded: once per run, and never where a launcher reports it.
#pragma once
#include "crashsafe/file/mapping.h"

namespace pytracer::core {

/// Writes it to stderr, unless a process of the same run did, or a parent that records to the same run has.
void announce_unrecorded(const char* directory, const crashsafe::Failure& failure) noexcept;

/// Writes a line about a part of the recording that is missing in every process, likewise.
void announce_missing(const char* text) noexcept;

}  // namespace pytracer::core
