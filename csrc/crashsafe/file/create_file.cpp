#include "crashsafe/file/create_file.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/box_gate.h"
#include "crashsafe/file/budget.h"
#include "crashsafe/file/early_memory.h"
#include "crashsafe/file/identity.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/text/bounded_text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <climits>
#include <cstring>

namespace pytracer::crashsafe {

std::atomic<Where> g_where{Where::kEarly};

namespace {

using namespace blackbox;

constexpr uint64_t kPage = 4096;
constexpr int kNameTries = 1000;
constexpr size_t kNameBytes = kHostBytes + 48;
constexpr int kMostTries = 4;  // a disk may have space again; recording must not retry each time
constexpr const char* kSuffix = ".blackbox";
constexpr const char* kOverBudget = "the run has used up its budget of black boxes (PYTRACER_MOST_BOXES)";
constexpr char kZeros[kPage] = {};

bool never = false, counted = false;
int tries = 0;
bool has_spare_room = false;  // for a report, in private memory: no file could be created

const char* directory = "";
PYTRACER_LARGE char path[PATH_MAX + kNameBytes] = "";
char name[kNameBytes] = "";
uint64_t boxes_device = 0, boxes_inode = 0, box_device = 0, box_inode = 0;
Failure failure;

bool failed(const char* what, int error) {
  failure = {what, error};
  return false;
}

void compose_name(const char* host, int pid, int number) {
  BoundedText text(name, sizeof name);
  text.add(host).add(".").add(static_cast<uint32_t>(pid));
  if (number != 0) text.add(".").add(static_cast<uint32_t>(number));
  text.add(kSuffix);
}

bool note_inode(int descriptor) {
  struct stat file{};
  if (syscall(SYS_fstat, descriptor, &file) != 0) return failed("cannot look at the black box", errno);
  box_device = file.st_dev;
  box_inode = file.st_ino;
  return true;
}

// With exclusive rights: a prepared link is refused. A pid that executes again, or is reused, gets the next free name.
bool create(int boxes, OpenFile& file) {
  char host[kHostBytes];
  read_host_as_name(host, sizeof host);
  for (int i = 0; i < kNameTries; i++) {
    compose_name(host, sys_getpid(), i);
    if (file.open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, boxes, 0600)) return note_inode(file.descriptor());
    if (file.error() != EEXIST) return failed("cannot create a black box", file.error());
  }
  return failed("cannot create a black box: too many of this process", EEXIST);
}

// Most pages of a table are zero, and are in the file already.
bool copy_used(int descriptor, const BoxMapping& from) {
  for (uint64_t at = 0; at < from.nbytes; at += kPage) {
    if (memcmp(from.at + at, kZeros, kPage) == 0) continue;
    if (syscall(SYS_pwrite64, descriptor, from.at + at, kPage, from.offset + at) != static_cast<long>(kPage)) return false;
  }
  return true;
}

bool leave_early(int descriptor) {
  if (!preallocate(descriptor, 0, core_bytes(), failure)) return false;
  void* at = map_box(descriptor, nullptr, 0, core_bytes());
  if (at == nullptr) return failed("cannot map the black box", errno);
  complete_identity(*g_box.header);
  move_core_regions(static_cast<char*>(at));
  return true;
}

// The file replaces each private copy in place: pointers into it stay valid.
bool replace_copies(int descriptor) {
  if (!preallocate(descriptor, 0, box_file_bytes, failure)) return false;
  complete_identity(*g_box.header);
  uint32_t count = box_mapping_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++)
    if (!copy_used(descriptor, box_mappings[i])) return failed("cannot write the black box", errno);
  for (uint32_t i = 0; i < count; i++)
    if (map_box(descriptor, box_mappings[i].at, box_mappings[i].offset, box_mappings[i].nbytes) == nullptr)
      return failed("cannot map the black box", errno);
  return true;
}

// Descriptors are not kept: programs close those that they do not know, and count their own.
bool make(Need need) {
  if (directory[0] == 0) return failed("there is no run directory", ENOENT);
  if (over_budget() && need != Need::kMust) return failed(kOverBudget, EDQUOT);
  char boxes_path[PATH_MAX + 8];
  BoundedText(boxes_path, sizeof boxes_path).add(directory).add("/boxes");
  OpenFile boxes(boxes_path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  struct stat found{};
  if (!boxes.opened() || syscall(SYS_fstat, boxes.descriptor(), &found) != 0)
    return failed("cannot open the run directory", boxes.opened() ? errno : boxes.error());
  if (found.st_dev != boxes_device || found.st_ino != boxes_inode || !is_ours_alone(boxes.descriptor(), true))
    return failed("the run directory is no longer the one that it was", EPERM);
  OpenFile file;
  if (!create(boxes.descriptor(), file)) return false;
  if (!(g_where.load(std::memory_order_relaxed) == Where::kCopied ? replace_copies(file.descriptor()) : leave_early(file.descriptor()))) {
    syscall(SYS_unlinkat, boxes.descriptor(), name, 0);
    return false;
  }
  BoundedText(path, sizeof path).add(boxes_path).add("/").add(name);
  count_box(box_file_bytes);
  return true;
}

// Once per process.
void count_failure() {
  if (counted) return;
  counted = true;
  if (failure.what == kOverBudget) return count_unrecorded(Unrecorded::kBudget);
  switch (failure.error) {
    case EACCES:
    case EPERM:
    case EROFS: return count_unrecorded(Unrecorded::kPermission);
    case ENOENT:
    case ENOTDIR:
    case ELOOP: return count_unrecorded(Unrecorded::kDirectory);
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return count_unrecorded(Unrecorded::kDisk);
    default: return count_unrecorded(Unrecorded::kOther);
  }
}

// No file: memory for a report that will not be read, so that the steps of the report need no checks.
void make_room_for_report() {
  if (g_where.load(std::memory_order_relaxed) == Where::kCopied || has_spare_room) return;
  long at = syscall(SYS_mmap, nullptr, core_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == -1) return;
  has_spare_room = true;
  move_core_regions(reinterpret_cast<char*>(at));
}

}  // namespace

Failure box_failure() noexcept { return failure; }
const char* box_path() noexcept { return path; }
const char* box_name() noexcept { return name; }

bool create_box(Need need) noexcept {
  if (never) return false;  // also in a sandbox, where no system call is allowed
  int saved_errno = errno;
  uint64_t all = ~our_signals(), old = 0;  // a handler that records would find the gate closed by its own thread
  sys_mask(SIG_BLOCK, &all, &old);
  bool made = false;
  {
    BoxGate gate;
    made = has_box();
    if (!made && gate.open() && (tries < kMostTries || need == Need::kReport)) {
      tries++;
      made = make(need);
      if (made) {
        g_where.store(Where::kMade, std::memory_order_release);
        std::atomic_ref(g_box.header->state).store(g_box.header->state, std::memory_order_release);
      } else {
        name[0] = path[0] = 0;
        count_failure();
        if (need == Need::kReport) make_room_for_report();
      }
    }
  }
  sys_mask(SIG_SETMASK, &old, nullptr);
  errno = saved_errno;
  return made;
}

bool room_for_report() noexcept { return ensure_box(Need::kReport) || g_box.arena.data != nullptr; }

bool is_own_box(int descriptor) noexcept {
  struct stat file{};
  return syscall(SYS_fstat, descriptor, &file) == 0 && file.st_dev == box_device && file.st_ino == box_inode;
}

void set_box_directory(const char* run_directory, uint64_t device, uint64_t inode) noexcept {
  directory = run_directory;
  boxes_device = device;
  boxes_inode = inode;
  tries = 0;
}

void begin_early() noexcept {
  if (show_early_memory()) g_where.store(Where::kEarly, std::memory_order_release);
}

void forget_box(bool copied) noexcept {
  forget_gate();
  if (counted || has_spare_room || tries != 0 || name[0] != 0) {  // else no file was attempted, and no page need be copied
    counted = has_spare_room = false;
    tries = 0;
    name[0] = path[0] = 0;
  }
  if (copied) g_where.store(Where::kCopied, std::memory_order_release);
}

void refuse_boxes() noexcept { never = true; }

}  // namespace pytracer::crashsafe
