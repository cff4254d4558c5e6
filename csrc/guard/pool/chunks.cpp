#include "guard/pool/chunks.h"

#include "guard/pool/pages.h"

#include <cerrno>
#include <cstdlib>

namespace pytracer::guard {

bool Chunks::prepare(const Arena& arena) noexcept {
  arena_ = &arena;
  count_ = (arena.most_count() + kUnits - 1) / kUnits;
  chunks_ = static_cast<Chunk*>(calloc(count_, sizeof(Chunk)));
  return chunks_ != nullptr;
}

uint32_t Chunks::behind_open(uint32_t first, uint32_t units) const noexcept {
  for (uint32_t c = (first + units - 1) / kUnits + 1; c-- > first / kUnits;)
    if (chunks_[c].open) return (c + 1) * kUnits;
  return 0;
}

void Chunks::enter(uint32_t first, uint32_t units, uint32_t before) noexcept {
  for (uint32_t c = first / kUnits; c <= (first + units - 1) / kUnits; c++) {
    chunks_[c].live++;
    chunks_[c].used = true;
  }
  if (before / kUnits != arena_->cursor() / kUnits) close_if_empty(before / kUnits);
}

void Chunks::leave(uint32_t first, uint32_t units) noexcept {
  for (uint32_t c = first / kUnits; c <= (first + units - 1) / kUnits; c++) {
    chunks_[c].live--;
    if (c != arena_->cursor() / kUnits) close_if_empty(c);
  }
}

void Chunks::add_hole(uint32_t first) noexcept {
  chunks_[first / kUnits].holes++;
  hole_count_++;
}

size_t Chunks::bytes(uint32_t chunk) const noexcept {
  uint32_t first = chunk * kUnits, end = first + kUnits < arena_->count() ? first + kUnits : arena_->count();
  return (end - first) * arena_->unit_bytes();
}

int Chunks::open(uint32_t chunk) noexcept {
  if (!open_marked(arena_->unit(chunk * kUnits), bytes(chunk))) return errno;
  chunks_[chunk].open = true;
  open_count_++;
  return 0;
}

void Chunks::close_if_empty(uint32_t index) noexcept {
  Chunk& chunk = chunks_[index];
  if (!chunk.used || chunk.live != 0 || !seal(arena_->unit(index * kUnits), bytes(index), false)) return;
  open_count_ -= chunk.open;
  hole_count_ -= chunk.holes;
  chunk = {};
}

}  // namespace pytracer::guard
