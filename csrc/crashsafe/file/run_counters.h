// Counts of a run on one host, shared by its processes: `counters.<host>` in the run directory, mapped by each of them. They keep a run
// within its budget, and count what was not recorded and has no black box. Every process that can write the run directory can write
// anything here: the numbers decide nothing but whether another black box is created.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pytracer {

inline constexpr char kCountersMagic[8] = {'p', 'y', 't', 'r', 'c', 'n', 't', '1'};
inline constexpr const char* kCountersPrefix = "counters.";
inline constexpr uint32_t kSeenProcesses = 2046;

/// Why a process has no black box although there was something to record.
enum class Unrecorded : uint32_t { kDirectory, kPermission, kDisk, kBudget, kFork, kOther, kCount };

/// A process of the run: enough to name one that died and has no black box. A ring: the oldest are overwritten.
struct SeenProcess {
  int32_t pid, ppid;
  uint64_t started_mono_ns;
  char name[16];  // as prctl(PR_GET_NAME) has it
};

struct RunCounters {
  char magic[8];
  std::atomic<uint32_t> processes;  // started with the recorder, or forked by one that had it
  std::atomic<uint32_t> boxes;
  std::atomic<uint64_t> box_bytes;       // less what was released
  std::atomic<uint32_t> notice_written;  // the line about a process that is not recorded has been written
  std::atomic<uint32_t> unrecorded[static_cast<size_t>(Unrecorded::kCount)];
  std::atomic<uint32_t> announced;  // so has the line about a part that is missing in every process
  uint32_t reserved[2];
  SeenProcess seen[kSeenProcesses];
};
static_assert(sizeof(SeenProcess) == 32 && offsetof(RunCounters, seen) == 64 && sizeof(RunCounters) == 64 + 32 * kSeenProcesses);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace pytracer
