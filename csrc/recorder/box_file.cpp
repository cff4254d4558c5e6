#include "box_file.h"

#include "../crashsafe/arch.h"
#include "../crashsafe/sys.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

// Address space only. Small reservations are tried when the process lives under a limit on it.
constexpr size_t kReservations[] = {1ull << 30, 256ull << 20, 32ull << 20};
constexpr int kNameTries = 1000;
constexpr int kGrowWaits = 5000;  // of 0.1 ms
constexpr size_t kPage = 4096;

char directory_[PATH_MAX];
char path_[PATH_MAX + 128];
size_t reserved_ = 0;
size_t file_bytes_ = 0;
std::atomic_flag growing_ = ATOMIC_FLAG_INIT;
bool preloaded_ = false;
bool private_memory_ = false;  // a forked child without a file
bool keeps_little_ = false;

size_t round_up(size_t n) { return (n + kPage - 1) & ~(kPage - 1); }

size_t read_file(const char* path, char* out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, out, size - 1);
  close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

uint64_t start_ticks() {
  char text[1024];
  if (read_file("/proc/self/stat", text, sizeof text) == 0) return 0;
  const char* at = strrchr(text, ')');  // the name may hold anything
  for (int field = 2; at != nullptr && field < 22; field++) at = strchr(at + 1, ' ');
  return at != nullptr ? strtoull(at + 1, nullptr, 10) : 0;
}

bool make_directory(const char* path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }

// Creates the file with exclusive rights; a pid that execs again, or is reused, gets the next free name.
int create_file(Failure& failure) {
  char host[64] = "host", boxes[PATH_MAX + 8];
  gethostname(host, sizeof host - 1);
  for (char* c = host; *c != 0; c++)
    if (*c == '/') *c = '_';
  snprintf(boxes, sizeof boxes, "%s/boxes", directory_);
  int fd = -1;
  for (int i = 0; i < kNameTries && fd < 0; i++) {
    if (i == 0)
      snprintf(path_, sizeof path_, "%s/%s.%d.blackbox", boxes, host, getpid());
    else
      snprintf(path_, sizeof path_, "%s/%s.%d.%d.blackbox", boxes, host, getpid(), i);
    fd = open(path_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && i == 0 && make_directory(directory_) && make_directory(boxes))
      fd = open(path_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) failure = {"cannot create a black box", errno};
  return fd;
}

// Never sparse: on a full disk a store into a hole kills the process with SIGBUS.
bool preallocate(int fd, size_t from, size_t nbytes, Failure& failure) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && from + nbytes > limit.rlim_cur) {  // else the kernel sends SIGXFSZ, which kills
    failure = {"the black box would be larger than a file may be (ulimit -f)", EFBIG};
    return false;
  }
  int error;
  do error = posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(nbytes));
  while (error == EINTR);
  if (error != 0) failure = {"cannot preallocate the black box", error};
  return error == 0;
}

// A fault brings in the page that was touched and no other: the kernel's read-around of 128 KiB would clear pages that nobody
// asked for (measured: 1.3 ms of CPU time for a process that starts and ends, 0.15 without).
void* map_file(int fd, size_t from, size_t nbytes) {
  void* at = mmap(g_box.base + from, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(from));
  if (at != MAP_FAILED) madvise(at, nbytes, MADV_RANDOM);
  return at;
}

void write_identity(FileHeader& header) {
  memcpy(header.magic, kMagic, sizeof header.magic);
  header.major = kMajor;
  header.minor = kMinor;
  header.header_bytes = kHeaderBytes;
  header.state = static_cast<uint32_t>(State::kCreating);
  header.arch = crashsafe::kArch;
  header.pid = getpid();
  header.ppid = getppid();
  header.uid = getuid();
  header.page_bytes = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  header.start_ticks = start_ticks();
  header.created_mono_ns = crashsafe::now_ns();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header.created_wall_ns = static_cast<uint64_t>(wall.tv_sec) * 1000000000ull + static_cast<uint64_t>(wall.tv_nsec);
  header.preloaded = preloaded_;
  header.exit_code = 0;
  header.exit_mono_ns = 0;
  header.trimmed = 0;
  char id[64];
  size_t n = read_file("/proc/sys/kernel/random/boot_id", id, sizeof id);
  while (n > 0 && id[n - 1] == '\n') n--;
  memcpy(header.boot_id, id, n < sizeof header.boot_id ? n : sizeof header.boot_id);
  gethostname(header.host, sizeof header.host - 1);
}

RegionEntry* directory() { return reinterpret_cast<RegionEntry*>(g_box.base + sizeof(FileHeader)); }
static_assert(sizeof(FileHeader) + kRegionLimit * sizeof(RegionEntry) <= kHeaderBytes);

template <class T>
void take(Span<T>& span, char* at, uint64_t items) {
  span = {reinterpret_cast<T*>(at), static_cast<uint32_t>(items)};
}

void attach_region(const RegionEntry& entry) {
  char* at = g_box.base + entry.offset;
  switch (static_cast<RegionKind>(entry.kind)) {
    case RegionKind::kJournal: take(g_box.journal, at, entry.item_count); break;
    case RegionKind::kEpochs: take(g_box.epochs, at, entry.item_count); break;
    case RegionKind::kCrash: take(g_box.crash, at, entry.item_count); break;
    case RegionKind::kNativeFrames: take(g_box.native_frames, at, entry.item_count); break;
    case RegionKind::kPythonThreads: take(g_box.python_threads, at, entry.item_count); break;
    case RegionKind::kPythonFrames: take(g_box.python_frames, at, entry.item_count); break;
    case RegionKind::kImages: take(g_box.images, at, entry.item_count); break;
    case RegionKind::kStorageHits: take(g_box.hits, at, entry.item_count); break;
    case RegionKind::kAlsoCrashed: take(g_box.also_crashed, at, entry.item_count); break;
    case RegionKind::kArena: take(g_box.arena, at, entry.item_count); break;
    case RegionKind::kMaps: take(g_box.maps, at, entry.item_count); break;
    case RegionKind::kMemory: take(g_box.memory, at, entry.item_count); break;
    case RegionKind::kThreadStacks: take(g_box.thread_stacks, at, entry.item_count); break;
    case RegionKind::kHolders: take(g_box.holders, at, entry.item_count); break;
    case RegionKind::kThreadFrames: take(g_box.thread_frames, at, entry.item_count / sizeof(uint64_t)); break;
    default: break;  // threads and storages are attached by who asked for them
  }
}

struct Plan {
  RegionKind kind;
  uint32_t item_bytes;
  uint64_t items;
};

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

// Other threads go on writing into a table: into memory of their own from now on, because a store into a hole needs a block,
// and on a full disk there is none.
bool detach(size_t offset, size_t nbytes) {
  return mmap(g_box.base + offset, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

constexpr char kZeros[kPage] = {};

// Parts of the file that are given back, neighbours in one call.
struct Holes {
  int fd;
  size_t from = 0, to = 0;

  void add(size_t offset, size_t nbytes) {
    if (offset != to) {
      punch();
      from = offset;
    }
    to = offset + nbytes;
  }
  void add_unused(size_t offset, size_t nbytes) {
    for (size_t at = offset; at < offset + nbytes; at += kPage)
      if (memcmp(g_box.base + at, kZeros, kPage) == 0) add(at, kPage);
  }
  void punch() {
    if (from < to) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(to - from));
    from = to;
  }
};

// Copies what is not zero: most pages of a fresh table are, and a forked worker should start quickly.
bool copy_used(int fd, const char* from, size_t offset, size_t nbytes) {
  for (size_t at = 0; at < nbytes; at += kPage) {
    size_t n = nbytes - at < kPage ? nbytes - at : kPage;
    if (memcmp(from + at, kZeros, n) == 0) continue;
    if (pwrite(fd, from + at, n, static_cast<off_t>(offset + at)) != static_cast<ssize_t>(n)) return false;
  }
  return true;
}

// The parent goes on writing meanwhile: only what was there when the child looked first belongs to it.
bool copy_inherited(int fd, const FileHeader& inherited, const RegionEntry* entries) {
  for (uint32_t i = 0; i < inherited.region_count; i++) {
    const RegionEntry& entry = entries[i];
    auto kind = static_cast<RegionKind>(entry.kind);
    size_t nbytes = kind == RegionKind::kJournal ? inherited.journal_used : entry.nbytes;
    bool guard = kind == RegionKind::kGuard || kind == RegionKind::kGuarded;  // guarded storages stay guarded in the child
    bool storages = kind == RegionKind::kStorages || kind == RegionKind::kForeign || kind == RegionKind::kNames || guard;
    if (kind != RegionKind::kJournal && kind != RegionKind::kEpochs && !storages) continue;
    if (nbytes > entry.nbytes) nbytes = entry.nbytes;
    if (!copy_used(fd, g_box.base + entry.offset, entry.offset, nbytes)) return false;
  }
  return true;
}

}  // namespace

const char* box_path() noexcept { return path_; }
const char* run_directory() noexcept { return directory_; }

bool open_box(const char* directory, bool preloaded, Failure& failure) noexcept {
  if (strlen(directory) >= sizeof directory_) {
    failure = {"the name of the run directory is too long", ENAMETOOLONG};
    return false;
  }
  strcpy(directory_, directory);
  preloaded_ = preloaded;
  Plan plan[2 + sizeof kCrashRegions / sizeof kCrashRegions[0]] = {
      {RegionKind::kJournal, 1, kJournalBytes},
      {RegionKind::kEpochs, sizeof(Epoch), kEpochSlots},
  };
  size_t count = 2, total = kHeaderBytes;
  for (const auto& region : kCrashRegions) plan[count++] = {region.kind, region.item_bytes, region.items};
  for (size_t i = 0; i < count; i++) total += round_up(plan[i].item_bytes * plan[i].items);

  if (g_box.base == nullptr) {
    for (size_t size : kReservations) {
      void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at == MAP_FAILED) continue;
      g_box.base = static_cast<char*>(at);
      reserved_ = size;
      break;
    }
    if (g_box.base == nullptr) {
      failure = {"cannot reserve address space", errno};
      return false;
    }
    madvise(g_box.base, reserved_, MADV_DONTDUMP);  // a core dump need not walk the reservation
  }
  int fd = create_file(failure);
  if (fd < 0) {
    path_[0] = 0;
    return false;
  }
  void* mapped = preallocate(fd, 0, total, failure) ? map_file(fd, 0, total) : MAP_FAILED;
  close(fd);
  if (mapped == MAP_FAILED) {
    if (failure.what == nullptr) failure = {"cannot map the black box", errno};
    unlink(path_);
    path_[0] = 0;
    return false;
  }
  file_bytes_ = total;
  auto& header = *reinterpret_cast<FileHeader*>(g_box.base);
  write_identity(header);
  header.step = -1;
  header.journal_used = kJournalFirst;
  size_t offset = kHeaderBytes;
  g_box.header = &header;
  for (size_t i = 0; i < count; i++) {
    RegionEntry& entry = ::pytracer::recorder::directory()[i];
    entry = {static_cast<uint32_t>(plan[i].kind), plan[i].item_bytes, offset, plan[i].item_bytes * plan[i].items, plan[i].items, 0, 0};
    attach_region(entry);
    offset += round_up(entry.nbytes);
  }
  std::atomic_ref(header.region_count).store(static_cast<uint32_t>(count), std::memory_order_release);
  g_box_pid = getpid();
  std::atomic_ref(header.state).store(static_cast<uint32_t>(State::kRecording), std::memory_order_release);
  return true;
}

void* add_region(RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept {
  for (int waits = 0; growing_.test_and_set(std::memory_order_acquire); waits++) {
    if (waits == kGrowWaits) return nullptr;
    timespec t{0, 100'000};
    nanosleep(&t, nullptr);
  }
  void* result = nullptr;
  FileHeader& header = *g_box.header;
  size_t nbytes = round_up(item_bytes * items);
  uint32_t index = header.region_count;
  if (index < kRegionLimit && file_bytes_ + nbytes <= reserved_) {
    char* at = g_box.base + file_bytes_;
    void* mapped = MAP_FAILED;
    if (private_memory_) {
      mapped = mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    } else {
      Failure failure;
      int fd = open(path_, O_RDWR | O_CLOEXEC);  // reopened by name: programs close descriptors they do not know
      if (fd >= 0 && preallocate(fd, file_bytes_, nbytes, failure)) mapped = map_file(fd, file_bytes_, nbytes);
      if (fd >= 0) close(fd);
    }
    if (mapped != MAP_FAILED) {
      directory()[index] = {static_cast<uint32_t>(kind), item_bytes, file_bytes_, item_bytes * items, items, first_thread, log2_slots};
      file_bytes_ += nbytes;
      std::atomic_ref(header.region_count).store(index + 1, std::memory_order_release);
      result = at;
    }
  }
  growing_.clear(std::memory_order_release);
  return result;
}

void reopen_after_fork() noexcept {
  growing_.clear(std::memory_order_relaxed);  // its holder does not exist in the child
  FileHeader inherited = *g_box.header;
  RegionEntry entries[kRegionLimit];
  memcpy(entries, directory(), sizeof entries);
  while (inherited.region_count > 0 && entries[inherited.region_count - 1].offset + entries[inherited.region_count - 1].nbytes > file_bytes_)
    inherited.region_count--;  // the parent added it since the fork: it is not in our mapping
  Failure failure;
  int fd = create_file(failure);
  bool ok = fd >= 0 && preallocate(fd, 0, file_bytes_, failure) && copy_inherited(fd, inherited, entries);
  void* mapped = ok ? map_file(fd, 0, file_bytes_) : MAP_FAILED;
  private_memory_ = mapped == MAP_FAILED;
  if (private_memory_) {
    if (fd >= 0) unlink(path_);
    path_[0] = 0;
    // Replacing a mapping by one of the same size needs no address space; refused only when the kernel is out of memory for
    // its own tables. Going on would write the child's life into the parent's box.
    if (mmap(g_box.base, file_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) _exit(127);
  }
  if (fd >= 0) close(fd);
  FileHeader& header = *g_box.header;
  write_identity(header);
  memcpy(directory(), entries, inherited.region_count * sizeof(RegionEntry));
  header.journal_used = !private_memory_ ? inherited.journal_used : kJournalFirst;
  header.step = inherited.step;
  header.step_source = inherited.step_source;
  header.epoch = inherited.epoch;
  header.python_minor = inherited.python_minor;
  header.python_offsets_ok = inherited.python_offsets_ok;
  g_box_pid = header.pid;
  std::atomic_ref(header.region_count).store(inherited.region_count, std::memory_order_release);
  std::atomic_ref(header.state).store(static_cast<uint32_t>(State::kRecording), std::memory_order_release);
}

void keep_little() noexcept { keeps_little_ = true; }

void trim_at_exit(int code) noexcept {
  bool recorded = g_box.tier_count.load() != 0 || g_box.foreign.load() != nullptr || g_box.chunk_count.load() != 0;
  if (private_memory_ || g_box.crash.data->state != 0) return;
  if (recorded && (!keeps_little_ || code != 0)) return;
  int fd = open(path_, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  FileHeader& header = *g_box.header;
  std::atomic_ref(header.trimmed).store(1, std::memory_order_release);  // first: zeros are never taken for "there was nothing"
  Holes holes{fd};
  for (uint32_t i = 0; i < header.region_count; i++) {
    const RegionEntry& entry = directory()[i];
    size_t nbytes = round_up(entry.nbytes);
    switch (fate(static_cast<RegionKind>(entry.kind))) {
      case Fate::kUsedPart: {
        size_t keep = round_up(header.journal_used);
        if (keep < nbytes) holes.add(entry.offset + keep, nbytes - keep);
        break;
      }
      case Fate::kUsedPages: holes.add_unused(entry.offset, nbytes); break;
      case Fate::kForCrash: holes.add(entry.offset, nbytes); break;
      case Fate::kGone:
        if (detach(entry.offset, nbytes)) holes.add(entry.offset, nbytes);
        break;
      case Fate::kWhole: break;
    }
  }
  holes.punch();
  close(fd);
}

}  // namespace pytracer::recorder
