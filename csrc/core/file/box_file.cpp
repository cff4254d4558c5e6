#include "core/file/box_file.h"

#include "core/file/run_counters.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/bounded_text.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace pytracer::recorder {
namespace {

using namespace blackbox;
using crashsafe::box_file_bytes;
using crashsafe::box_mapping_count;
using crashsafe::box_mappings;
using crashsafe::BoxMapping;
using crashsafe::kCoreRegions;

constexpr int kGrowWaits = 5000;  // of 0.1 ms
constexpr size_t kPage = 4096;
constexpr uint64_t kBytesPerBox = 4ull << 20;  // a run may take so much disk for each box of its budget

PYTRACER_LARGE char directory_[PATH_MAX];
std::atomic_flag growing_ = ATOMIC_FLAG_INIT;
RunCounters* counters_ = nullptr;
bool keeps_little_ = false;
uint64_t common_facts_end_ = kJournalFirst;

size_t round_up(size_t n) { return (n + kPage - 1) & ~(kPage - 1); }

// A descriptor for the time of a block.
class Opened {
 public:
  explicit Opened(int fd) : fd_(fd) {}
  ~Opened() {
    if (fd_ >= 0) close(fd_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

bool make_directory(int below, const char* path) { return mkdirat(below, path, 0700) == 0 || errno == EEXIST; }

// The program may change its directory, and its processes theirs.
bool note_directory(const char* directory) {
  size_t used = 0;
  if (directory[0] != '/') {
    if (getcwd(directory_, sizeof directory_ - 1) == nullptr) return false;
    used = strlen(directory_);
    directory_[used++] = '/';
  }
  crashsafe::BoundedText(directory_ + used, sizeof directory_ - used).add(directory);
  return used + strlen(directory) + sizeof "/boxes" <= sizeof directory_;
}

// `boxes/` belongs to us alone, and so no link in it was put there by others. The directory above may be writable for a group of the
// user's (umask 002): who may write there can take the recordings away, but not lead them elsewhere.
int open_boxes(const char* host, Failure& failure) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  int made = open(directory_, kFlags);
  if (made < 0 && errno == ENOENT && make_directory(AT_FDCWD, directory_)) made = open(directory_, kFlags);
  Opened above(made);
  if (above < 0) {
    failure = {"cannot open the run directory", errno};
    return -1;
  }
  if (!crashsafe::is_ours_alone(above, false)) {
    failure = {"the run directory belongs to another user, or others may write into it", EPERM};
    return -1;
  }
  int boxes = openat(above, "boxes", kFlags | O_NOFOLLOW);
  if (boxes < 0 && errno == ENOENT && make_directory(above, "boxes")) boxes = openat(above, "boxes", kFlags | O_NOFOLLOW);
  if (boxes < 0) {
    failure = {"cannot create boxes/ in the run directory", errno};
  } else if (!crashsafe::is_ours_alone(boxes, true)) {
    failure = {"boxes/ in the run directory belongs to another user, or others may write into it", EPERM};
    close(boxes);
    boxes = -1;
  } else {
    counters_ = open_run_counters(above, host);
  }
  return boxes;
}

// The same questions by name, of a run directory that is prepared: nothing but the counters is opened. Whoever puts something else there
// meanwhile is found out before a box is made: `boxes/` is then asked again, and whether it is still this one.
bool find_boxes(const char* host, struct stat& boxes) {
  struct stat above{};
  char path[sizeof directory_ + sizeof "/boxes"];
  crashsafe::BoundedText(path, sizeof path).add(directory_).add("/boxes");
  if (stat(directory_, &above) != 0 || !S_ISDIR(above.st_mode) || !crashsafe::is_ours_alone(above, false)) return false;
  if (lstat(path, &boxes) != 0 || !S_ISDIR(boxes.st_mode) || !crashsafe::is_ours_alone(boxes, true)) return false;
  counters_ = find_run_counters(directory_, host);
  return counters_ != nullptr;
}

// What needs no system call, or hardly one: many processes never have a file. The rest is written when it is made.
void write_identity(FileHeader& header, bool preloaded, uint32_t page_bytes) {
  memcpy(header.magic, kMagic, sizeof header.magic);
  header.major = kMajor;
  header.minor = kMinor;
  header.header_bytes = kHeaderBytes;
  header.state = static_cast<uint32_t>(State::kRecording);
  header.arch = crashsafe::kArch;
  header.pid = getpid();
  header.ppid = getppid();
  header.page_bytes = page_bytes;
  header.created_mono_ns = crashsafe::now_ns();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header.created_wall_ns = static_cast<uint64_t>(wall.tv_sec) * 1000000000ull + static_cast<uint64_t>(wall.tv_nsec);
  header.preloaded = preloaded;
}

// A process after a fork: it goes on where its parent stood, and has counted nothing yet.
void renew_header(const FileHeader& inherited, uint64_t journal_used, uint32_t regions) {
  FileHeader header{};
  write_identity(header, inherited.preloaded != 0, inherited.page_bytes);
  header.journal_used = journal_used;
  header.region_count = regions;
  header.step = inherited.step;
  header.step_source = inherited.step_source;
  header.epoch = inherited.epoch;
  header.python_minor = inherited.python_minor;
  header.python_offsets_ok = inherited.python_offsets_ok;
  *g_box.header = header;
}

RegionEntry* directory() { return reinterpret_cast<RegionEntry*>(reinterpret_cast<char*>(g_box.header) + sizeof(FileHeader)); }

// Where a region of the directory lies: those that every box has are in the first mapping, of the others each has its own.
char* place_of(uint32_t index) {
  const BoxMapping& mapping = box_mappings[index < kCoreRegions ? 0 : index - kCoreRegions + 1];
  return mapping.at + (directory()[index].offset - mapping.offset);
}

// What becomes of a region when the process ends well.
enum class Fate {
  kWhole,
  kUsedPart,   ///< the journal, as far as it was written
  kUsedPages,  ///< what a reader wants to know of a process that ended well
  kForCrash,   ///< given back, but still there: the process may crash after all, and then its blocks come anew
  kGone,       ///< tables of what lives and lived
};

Fate fate(RegionKind kind) {
  switch (kind) {
    case RegionKind::kJournal: return Fate::kUsedPart;
    case RegionKind::kThreads:
    case RegionKind::kRecords:
    case RegionKind::kCollectives: return Fate::kUsedPages;
    case RegionKind::kEpochs:
    case RegionKind::kGraves:
    case RegionKind::kStorages:
    case RegionKind::kForeign:
    case RegionKind::kScopedTensors:
    case RegionKind::kNames: return Fate::kGone;
    default:
      for (const auto& region : kCrashRegions)
        if (region.kind == kind) return Fate::kForCrash;
      return Fate::kWhole;
  }
}

bool make_private(char* at, size_t nbytes) {
  return mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

constexpr char kZeros[kPage] = {};

// Parts of the file that are given back, neighbours in one call.
struct Holes {
  int fd;
  size_t from = 0, to = 0, all = 0;

  void add(size_t offset, size_t nbytes) {
    if (offset != to) {
      punch();
      from = offset;
    }
    to = offset + nbytes;
  }
  void add_unused(const char* at, size_t offset, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i += kPage)
      if (memcmp(at + i, kZeros, kPage) == 0) add(offset + i, kPage);
  }
  void punch() {
    bool given = from < to && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0;
    if (given) all += to - from;
    from = to;
  }
};

// The parent goes on writing meanwhile: only what was there when the child looked first belongs to it.
size_t inherited_bytes(const RegionEntry& entry, const FileHeader& inherited) {
  switch (static_cast<RegionKind>(entry.kind)) {
    case RegionKind::kJournal: return inherited.journal_used < entry.nbytes ? inherited.journal_used : entry.nbytes;
    case RegionKind::kEpochs:
    case RegionKind::kStorages:
    case RegionKind::kForeign:
    case RegionKind::kNames:
    case RegionKind::kGuard:  // guarded storages stay guarded in the child
    case RegionKind::kGuarded: return entry.nbytes;
    default: return 0;
  }
}

// Copies what is not zero: most pages of a fresh table are, and a forked worker should start quickly.
void copy_used(char* to, const char* from, size_t nbytes) {
  for (size_t at = 0; at < nbytes; at += kPage) {
    size_t n = nbytes - at < kPage ? nbytes - at : kPage;
    if (memcmp(from + at, kZeros, n) != 0) memcpy(to + at, from + at, n);
  }
}

// Copied aside and moved into place, where pointers lead.
bool detach(const BoxMapping& mapping, const FileHeader& inherited, const RegionEntry* first, uint32_t count) {
  bool anything = false;
  for (uint32_t i = 0; i < count; i++) anything = anything || inherited_bytes(first[i], inherited) != 0;
  if (!anything) return make_private(mapping.at, mapping.nbytes);
  void* aside = mmap(nullptr, mapping.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (aside == MAP_FAILED) return false;
  for (uint32_t i = 0; i < count; i++) {
    size_t at = first[i].offset - mapping.offset;
    copy_used(static_cast<char*>(aside) + at, mapping.at + at, inherited_bytes(first[i], inherited));
  }
  if (mremap(aside, mapping.nbytes, mapping.nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapping.at) != MAP_FAILED) return true;
  munmap(aside, mapping.nbytes);
  return false;
}

bool copy_tables(const FileHeader& inherited, uint32_t mappings) {
  RegionEntry entries[kRegionLimit];
  uint32_t count = kCoreRegions + mappings - 1;
  memcpy(entries, directory(), count * sizeof(RegionEntry));
  for (uint32_t i = 1; i < mappings; i++)
    if (!detach(box_mappings[i], inherited, entries + kCoreRegions + i - 1, 1)) return false;
  if (!detach(box_mappings[0], inherited, entries, kCoreRegions)) return false;
  memcpy(directory(), entries, count * sizeof(RegionEntry));
  renew_header(inherited, inherited.journal_used, count);
  return true;
}

}  // namespace

const char* run_directory() noexcept { return directory_; }
RunCounters* run_counters() noexcept { return counters_; }

bool prepare_box(const char* directory, bool preloaded, uint32_t most_boxes, bool& at_once, Failure& failure) noexcept {
  if (!note_directory(directory)) {
    directory_[0] = 0;
    failure = {"the name of the run directory is too long", ENAMETOOLONG};
    return false;
  }
  char host[crashsafe::kHostBytes], path[sizeof directory_ + 160];
  crashsafe::read_host_as_name(host, sizeof host);
  struct stat boxes{};
  if (!find_boxes(host, boxes)) {
    Opened opened(open_boxes(host, failure));
    if (opened < 0 || fstat(opened, &boxes) != 0) {
      directory_[0] = 0;
      return false;
    }
  }
  crashsafe::set_box_place(directory_, boxes.st_dev, boxes.st_ino);
  crashsafe::set_budget(counters_, most_boxes, most_boxes * kBytesPerBox);
  crashsafe::BoundedText text(path, sizeof path);
  text.add(directory_).add("/boxes/").add(host).add(".").add(static_cast<uint32_t>(getpid())).add(".blackbox");
  at_once = (counters_ != nullptr && count_process(*counters_) == 0) || lstat(path, &boxes) == 0;
  crashsafe::begin_early();
  write_identity(*g_box.header, preloaded, static_cast<uint32_t>(sysconf(_SC_PAGESIZE)));
  g_box.header->step = -1;
  g_box_pid = getpid();
  return true;
}

void* add_region(RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept {
  if (!crashsafe::ensure_box(crashsafe::Need::kMust)) return nullptr;
  for (int waits = 0; growing_.test_and_set(std::memory_order_acquire); waits++) {
    if (waits == kGrowWaits) return nullptr;
    timespec t{0, 100'000};
    nanosleep(&t, nullptr);
  }
  void* at = nullptr;
  FileHeader& header = *g_box.header;
  size_t nbytes = round_up(item_bytes * items), offset = box_file_bytes;
  uint32_t mapping = box_mapping_count.load(std::memory_order_relaxed), index = kCoreRegions + mapping - 1;
  if (index < kRegionLimit) {
    Failure failure;
    Opened fd(open(crashsafe::box_path(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));  // reopened by name: programs close descriptors they do not know
    if (fd >= 0 && crashsafe::is_own_box(fd) && crashsafe::preallocate(fd, offset, nbytes, failure))
      at = crashsafe::map_box(fd, nullptr, offset, nbytes);
  }
  if (at != nullptr) {
    box_mappings[mapping] = {static_cast<char*>(at), offset, nbytes};
    box_file_bytes += nbytes;
    box_mapping_count.store(mapping + 1, std::memory_order_release);
    directory()[index] = {static_cast<uint32_t>(kind), item_bytes, offset, item_bytes * items, items, first_thread, log2_slots};
    std::atomic_ref(header.region_count).store(index + 1, std::memory_order_release);
    if (counters_ != nullptr) counters_->box_bytes.fetch_add(nbytes, std::memory_order_relaxed);
  }
  growing_.clear(std::memory_order_release);
  return at;
}

void note_common_facts() noexcept { common_facts_end_ = g_box.header->journal_used; }

bool leave_box_to_parent(bool& copied) noexcept {
  growing_.clear(std::memory_order_relaxed);  // its holder does not exist in the child
  if (counters_ != nullptr) count_process(*counters_);
  uint32_t mappings = box_mapping_count.load(std::memory_order_relaxed);
  bool private_already = !crashsafe::has_box();  // copied from us at the fork, by the kernel
  FileHeader inherited = *g_box.header;
  copied = mappings > 1;
  if (copied && private_already) {
    renew_header(inherited, inherited.journal_used, inherited.region_count);
  } else if (copied) {
    if (!copy_tables(inherited, mappings)) {
      crashsafe::count_unrecorded(Unrecorded::kFork);
      return false;
    }
  } else {
    char* core = mappings == 1 ? box_mappings[0].at : nullptr;
    size_t nbytes = box_mappings[0].nbytes;
    crashsafe::begin_early();
    if (core != nullptr) munmap(core, nbytes);
    renew_header(inherited, common_facts_end_, 0);  // they are in the early memory still, also when the parent's journal moved
  }
  crashsafe::forget_box(copied);
  g_box_pid = getpid();  // last: a signal that came meanwhile wrote nothing to the parent's box
  return true;
}

bool empty_box() noexcept {
  uint32_t mappings = box_mapping_count.load(std::memory_order_relaxed);
  bool emptied = mappings > 1;
  FileHeader inherited = *g_box.header;
  for (uint32_t i = 0; i < mappings && emptied; i++) emptied = make_private(box_mappings[i].at, box_mappings[i].nbytes);
  if (emptied) {
    renew_header(inherited, kJournalFirst, 0);
    crashsafe::forget_box(true);
    return true;
  }
  g_box.chunk_count.store(0, std::memory_order_relaxed);
  g_box.name_count.store(0, std::memory_order_relaxed);
  for (auto*& names : g_box.names) names = nullptr;
  for (auto*& heads : g_box.heads) heads = nullptr;
  for (auto*& graves : g_box.graves) graves = nullptr;
  crashsafe::begin_early();
  return false;
}

void keep_little() noexcept { keeps_little_ = true; }

void trim_at_exit(int code) noexcept {
  bool recorded = g_box.tier_count.load() != 0 || g_box.foreign.load() != nullptr || g_box.chunk_count.load() != 0;
  if (!crashsafe::has_box() || g_box.crash.data->state != 0) return;
  if (recorded && (!keeps_little_ || code != 0)) return;
  Opened fd(open(crashsafe::box_path(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (fd < 0 || !crashsafe::is_own_box(fd)) return;
  FileHeader& header = *g_box.header;
  std::atomic_ref(header.trimmed).store(1, std::memory_order_release);  // first: zeros are never taken for "there was nothing"
  Holes holes{fd};
  uint32_t count = kCoreRegions + box_mapping_count.load(std::memory_order_acquire) - 1;
  for (uint32_t i = 0; i < count; i++) {
    const RegionEntry& entry = directory()[i];
    size_t nbytes = round_up(entry.nbytes);
    switch (fate(static_cast<RegionKind>(entry.kind))) {
      case Fate::kUsedPart: {
        size_t keep = round_up(header.journal_used);
        if (keep < nbytes) holes.add(entry.offset + keep, nbytes - keep);
        break;
      }
      case Fate::kUsedPages: holes.add_unused(place_of(i), entry.offset, nbytes); break;
      case Fate::kForCrash: holes.add(entry.offset, nbytes); break;
      case Fate::kGone:
        // Other threads go on writing into a table: into memory of their own from now on, because a store into a hole needs a
        // block, and on a full disk there is none.
        if (make_private(place_of(i), nbytes)) holes.add(entry.offset, nbytes);
        break;
      case Fate::kWhole: break;
    }
  }
  holes.punch();
  if (counters_ != nullptr) counters_->box_bytes.fetch_sub(holes.all, std::memory_order_relaxed);
}

}  // namespace pytracer::recorder
