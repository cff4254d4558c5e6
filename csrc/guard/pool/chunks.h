// Parts of the pool of small storages. With markers a part is opened as a whole: memory whose pages fault until they are used.
// A part without live storages becomes address space again, and its page tables are released. Callers hold the
// lock of pool.h.
#pragma once
#include "guard/pool/arena.h"

namespace pytracer::guard {

class Chunks {
 public:
  /// False when there is no memory for the counts.
  bool prepare(const Arena& arena) noexcept;

  /// For Arena::place without markers: 0 when no chunk there is open, else the first unit behind those that are.
  uint32_t behind_open(uint32_t first, uint32_t units) const noexcept;

  /// Opens what the run lies in. `may_open()`: false when the budget of mappings is used up. 0, kOverBudget or an errno.
  template <class MayOpen>
  int open_all(uint32_t first, uint32_t units, MayOpen may_open) noexcept {
    for (uint32_t c = first / kUnits; c <= (first + units - 1) / kUnits; c++)
      if (!chunks_[c].open) {
        if (!may_open()) return kOverBudget;
        if (int error = open(c)) return error;
      }
    return 0;
  }

  /// A run is allocated; `before`: the arena's cursor until now.
  void enter(uint32_t first, uint32_t units, uint32_t before) noexcept;

  /// It is freed: chunks without live storages are closed, except for the one that is being filled.
  void leave(uint32_t first, uint32_t units) noexcept;

  /// A run of an open chunk was closed by itself, which splits the chunk's mapping.
  void add_hole(uint32_t first) noexcept;

  bool is_open(uint32_t unit) const noexcept { return chunks_[unit / kUnits].open; }
  uint32_t open_count() const noexcept { return open_count_; }
  uint32_t hole_count() const noexcept { return hole_count_; }

  static constexpr int kOverBudget = -1;

 private:
  static constexpr uint32_t kUnits = 4096;  // 16 MiB: 2048 storages of a page, and 32 KiB of page tables
  struct Chunk {
    uint16_t live, holes;
    bool open, used;
  };

  int open(uint32_t chunk) noexcept;
  void close_if_empty(uint32_t chunk) noexcept;
  size_t bytes(uint32_t chunk) const noexcept;

  const Arena* arena_ = nullptr;
  Chunk* chunks_ = nullptr;
  uint32_t count_ = 0, open_count_ = 0, hole_count_ = 0;
};

}  // namespace pytracer::guard
