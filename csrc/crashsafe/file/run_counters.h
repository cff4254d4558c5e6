// Counts of a run on one host, shared by its processes: `counters.<host>` in the run directory, mapped by each of them. They keep a run within its
// budget, and say what was not recorded where no box can say it. Whoever may write the run directory may write anything here:
// the numbers decide nothing but whether another box is made.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pytracer {

inline constexpr char kCountersMagic[8] = {'p', 'y', 't', 'r', 'c', 'n', 't', '1'};
inline constexpr const char* kCountersPrefix = "counters.";
inline constexpr uint32_t kSeenProcesses = 2046;

/// Why a process has no box although there was something to record.
enum class Unrecorded : uint32_t { kDirectory, kPermission, kDisk, kBudget, kFork, kOther, kCount };

/// A process of the run: enough to give a name to one that was seen to die and has no box. A ring, the oldest go first.
struct SeenProcess {
  int32_t pid, ppid;
  uint64_t started_mono_ns;
  char name[16];  // as prctl(PR_GET_NAME) has it
};

struct RunCounters {
  char magic[8];
  std::atomic<uint32_t> processes;  // started with the recorder, or forked by one that had it
  std::atomic<uint32_t> boxes;
  std::atomic<uint64_t> box_bytes;  // less what was given back
  std::atomic<uint32_t> told;       // somebody wrote the line about what is not recorded
  std::atomic<uint32_t> unrecorded[static_cast<size_t>(Unrecorded::kCount)];
  uint32_t reserved[3];
  SeenProcess seen[kSeenProcesses];
};
static_assert(sizeof(SeenProcess) == 32 && offsetof(RunCounters, seen) == 64 && sizeof(RunCounters) == 64 + 32 * kSeenProcesses);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace pytracer
