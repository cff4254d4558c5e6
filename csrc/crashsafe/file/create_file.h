// The file of the black box, created when there is something to record: until then a process writes into a little memory of its own.
// Also in a signal handler: a crash is the most frequent reason.
//
//     early     the header, the first journal entries: static memory, free of cost in a process that records nothing
//     copied    a forked child of a process with tables: private memory at the addresses of the parent's regions
//     made      a file, mapped region by region wherever the kernel puts them
#pragma once
#include "crashsafe/file/mapping.h"

#include <atomic>
#include <cstdint>

namespace pytracer::crashsafe {

/// Where this process records: see above.
enum class Where { kEarly, kCopied, kMade };

/// Inline, for every record. Hidden here, too: -fvisibility is for definitions.
extern std::atomic<Where> g_where __attribute__((visibility("hidden")));

/// True when there is a file.
inline bool has_box() noexcept { return g_where.load(std::memory_order_acquire) == Where::kMade; }

enum class Need {
  kUseful,  ///< within the budget of the run
  kReport,  ///< the same; where no file can be created, memory for a report that will not be read
  kMust,    ///< torch, or the program asks for it
};

bool create_box(Need need) noexcept;

/// Creates the black box of this process unless there is one. Cheap then. Callable in a handler: system calls alone. False when there is
/// no file: g_box then shows the early memory, whose spans of crash regions are empty.
inline bool ensure_box(Need need = Need::kUseful) noexcept { return has_box() || create_box(need); }

/// The same for a report: true also when it will be lost, but there is memory to write it to.
bool room_for_report() noexcept;

/// Why the last attempt failed.
Failure box_failure() noexcept;

/// Its file, and the last part of that: empty until it is created, the same addresses always.
const char* box_path() noexcept;
const char* box_name() noexcept;

/// True when `descriptor` is the file of this process's black box: the name may refer to another one by now.
bool is_own_box(int descriptor) noexcept;

// ---- for the core, which prepares all this ----

/// Where black boxes are created: `directory`, absolute, holds `boxes/`, and is never freed. `device`, `inode`: of `boxes/` when it was
/// checked.
void set_box_directory(const char* directory, uint64_t device, uint64_t inode) noexcept;

/// g_box shows the early memory, emptied except for the header.
void begin_early() noexcept;

/// After fork, in the child: no thread is creating anything. `copied`: the mappings hold private copies.
void forget_box(bool copied) noexcept;

/// From now on no black box is created, whatever the need.
void refuse_boxes() noexcept;

}  // namespace pytracer::crashsafe
