// A process has no file until there is something to record: it begins in a little memory of its own, and moves into a file of
// the run directory when it must. Also in a signal handler: a crash is the most frequent reason.
//
//     early     the header, the first journal entries: static memory, which costs a process that records nothing nothing
//     copied    a forked child of a process with tables: private memory at the addresses of the parent's regions
//     made      a file, mapped region by region wherever the kernel puts them
#pragma once
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/run_counters.h"

#include <cstddef>
#include <cstdint>

struct stat;

namespace pytracer::crashsafe {

/// Why a box could not be made: a step and an errno. Text lives for ever.
struct Failure {
  const char* what = nullptr;
  int error = 0;
};

enum class Need {
  kUseful,  ///< within the budget of the run
  kReport,  ///< the same; where no file can be had, memory for a report that nobody will read
  kMust,    ///< torch, or the program asks for it
};

/// One mapping of the box; the first one holds everything that every box has.
struct BoxMapping {
  char* at = nullptr;
  uint64_t offset = 0, nbytes = 0;
};
inline constexpr uint32_t kBoxMappings = blackbox::kRegionLimit;
inline constexpr uint32_t kCoreRegions = 2 + sizeof blackbox::kCrashRegions / sizeof blackbox::kCrashRegions[0];

/// Makes the box of this process unless there is one. Cheap then. Callable in a handler: system calls alone. False when there is no
/// file: g_box then shows the early memory, whose spans of crash regions are empty.
bool ensure_box(Need need = Need::kUseful) noexcept;

/// The same for a report: true also when it will be lost, but there is memory to write it to.
bool room_for_report() noexcept;

/// True when there is a file.
bool has_box() noexcept;

/// Why the last attempt failed.
Failure box_failure() noexcept;

/// Its file, and the last part of that: empty until it is made, the same addresses always.
const char* box_path() noexcept;
const char* box_name() noexcept;

/// True when `descriptor` is the file of this process's box: a name may have come to mean another one.
bool is_own_box(int descriptor) noexcept;

/// A store found no page behind a mapping of ours: the file was cut short, or its disk is full. Puts private memory there, so that the
/// program goes on; what was in the page is lost to the reader. False when `addr` is not ours.
bool replace_lost_page(uint64_t addr) noexcept;

// ---- for the recorder, which prepares all this ----

/// The name of this host, and the same as part of a file's name.
inline constexpr size_t kHostBytes = 64;
void read_host(char* host, size_t room) noexcept;
void read_host_as_name(char* host, size_t room) noexcept;

/// Where boxes are made: `directory`, absolute, holds `boxes/`, and lives for ever. `boxes_device`, `boxes_inode`: what that was when it was checked.
void set_box_place(const char* directory, uint64_t boxes_device, uint64_t boxes_inode) noexcept;
void set_budget(RunCounters* counters, uint32_t most_boxes, uint64_t most_bytes) noexcept;
void count_unrecorded(Unrecorded why) noexcept;

/// Owner, and nobody else may write: what lies below was put there by us.
bool is_ours_alone(const struct stat& found, bool strictly) noexcept;
bool is_ours_alone(int descriptor, bool strictly) noexcept;

/// g_box shows the early memory, emptied but for the header.
void begin_early() noexcept;

/// The mappings, `core` first; written by whoever holds BoxGate, or in a forked child.
extern BoxMapping box_mappings[kBoxMappings];
extern std::atomic<uint32_t> box_mapping_count;
extern uint64_t box_file_bytes;

/// After fork, in the child: nobody is making anything. `copied`: the mappings hold private copies.
void forget_box(bool copied) noexcept;

/// From now on no box is made any more, whatever is asked.
void refuse_boxes() noexcept;

bool preallocate(int descriptor, uint64_t from, uint64_t nbytes, Failure& failure) noexcept;
void* map_box(int descriptor, void* at, uint64_t from, uint64_t nbytes) noexcept;

/// Nobody moves the box from here on; false: this very thread does, or another one takes too long. For fork(), and for BoxGate.
bool close_gate() noexcept;

/// Takes back what this thread closed; nothing else.
void open_gate() noexcept;

/// Held while the box moves, and by whoever writes into the early memory. Free of charge once there is a file.
class BoxGate {
 public:
  BoxGate() noexcept;
  ~BoxGate();
  BoxGate(const BoxGate&) = delete;
  BoxGate& operator=(const BoxGate&) = delete;
  /// False: this very thread is moving the box, or another one takes too long.
  bool open() const noexcept { return open_; }

 private:
  bool held_, open_;
};

}  // namespace pytracer::crashsafe
