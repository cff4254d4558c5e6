// The mapped black box ("box" in names), as the crash path sees it: fixed pointers, filled in by the core before any handler runs.
#pragma once
#include "blackbox/layout.h"

#include <atomic>
#include <cstdint>

namespace pytracer {

/// A region of the mapped file.
template <class T>
struct Span {
  T* data = nullptr;
  uint32_t items = 0;
};

/// One tier of the table of live storages.
struct Tier {
  blackbox::LiveStorage* slots = nullptr;
  uint64_t mask = 0;
  uint32_t shift = 0;
  uint32_t log2_slots = 0;
};

inline constexpr uint32_t kTierLimit = 4;
inline constexpr uint32_t kNameChunks = 8;
inline constexpr uint32_t kThreadLimit = 256;
inline constexpr uint32_t kThreadChunks = kThreadLimit / blackbox::kThreadsPerChunk;

/// The addresses of everything. They change once, when the file is created (create_file.h); from then on they stay the same, also when a
/// forked child maps its own file over its parent's.
struct BlackBox {
  // What every storage reads, in one cache line.
  alignas(64) std::atomic<const Tier*> newest{nullptr};
  blackbox::FileHeader* header = nullptr;
  Tier tiers[kTierLimit];
  std::atomic<uint32_t> tier_count{0};
  Span<char> journal;
  Span<blackbox::Epoch> epochs;
  Span<blackbox::CrashHeader> crash;
  Span<blackbox::NativeFrame> native_frames;
  Span<blackbox::PythonThread> python_threads;
  Span<blackbox::PythonFrame> python_frames;
  Span<blackbox::Image> images;
  Span<blackbox::StorageHit> hits;
  Span<blackbox::AlsoCrashed> also_crashed;
  Span<blackbox::MemoryBlock> memory;
  Span<blackbox::ThreadStack> thread_stacks;
  Span<uint64_t> thread_frames;
  Span<blackbox::Holder> referrers;
  Span<blackbox::Argument> arguments;
  Span<char> arena;
  Span<char> maps;
  std::atomic<blackbox::ExternalAllocation*> external{nullptr};
  blackbox::ThreadHead* heads[kThreadChunks] = {};
  blackbox::StorageLifetime* freed[kThreadChunks] = {};
  std::atomic<uint32_t> chunk_count{0};
  blackbox::NameSlot* names[kNameChunks] = {};  // chunk i has kNameSlots << i slots
  std::atomic<uint32_t> name_count{0};          // slots in use, of all chunks together
};

/// The black box of this process. `header` is null until recording has started.
extern BlackBox g_box;

/// The process that g_box describes. A vfork child shares our memory but not our pid: it must touch nothing.
extern int g_box_pid;

}  // namespace pytracer
