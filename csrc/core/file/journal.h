// The journal: entries are appended once and never overwritten. Also the coarse timestamps (epochs) that order storages.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core {

/// A piece of a payload.
struct Piece {
  const void* data;
  size_t nbytes;
};

/// Begins a new epoch and stamps it. Wait-free; any thread.
uint32_t tick() noexcept;

/// Appends an entry made of the pieces. Returns its id (offset / 8), 0 when the journal is full (counted). Any thread.
uint32_t append(blackbox::EntryKind kind, const Piece* pieces, size_t count) noexcept;
uint32_t append(blackbox::EntryKind kind, const void* data, size_t nbytes) noexcept;

/// A CORE_NOTE; the reader has the sentence.
void note(blackbox::CoreNote code, uint64_t addr, uint64_t value) noexcept;

}  // namespace pytracer::core
