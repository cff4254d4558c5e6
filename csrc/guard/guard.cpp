#include "guard/guard.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"
#include "guard/chunks.h"
#include "guard/pages.h"
#include "guard/sampling.h"

#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

int pytracer_guarding = 0;

namespace pytracer::guard {
namespace {

using namespace blackbox;

constexpr size_t kSmallPool = 32ull << 30, kLargePool = 32ull << 30;  // address space only
constexpr size_t kLargeBytes = 2ull << 20;                            // below, a huge page would make a guard of 4 KiB useless
constexpr size_t kMostCanary = 4096;
constexpr int kArmed = 1, kPool = 2;
constexpr uint64_t kMappingsEach = 2;  // the storage, and what lies behind it

struct Settings {
  uint64_t budget_bytes = 0, budget_mappings = 0;
  size_t alignment = 64;
  bool underrun = false;
};

// Two system calls are the price of a guarded storage: a lock around the book-keeping is not what costs.
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct Locked {
  Locked() { pthread_mutex_lock(&lock); }
  ~Locked() { pthread_mutex_unlock(&lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

Ledger ledger;
Arena small, large;
Chunks chunks;
Settings settings;
std::atomic<GuardMechanism> mechanism{GuardMechanism::kNone};  // of small storages
size_t page_bytes = 4096;
uint64_t last_number = 0, inherited_until = 0, protected_live = 0, live = 0, live_bytes = 0, most_bytes = 0;
std::atomic<bool> stopped{false};
PYTRACER_LARGE std::atomic<bool> ready[1 << 16];  // by slot: its canaries are in place

constexpr uint32_t kMostSlots = sizeof ready / sizeof ready[0];

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
Arena& arena_of(const Slot& slot) { return slot.large ? large : small; }
bool in_open_chunk(const Slot& slot) { return !slot.large && chunks.is_open(slot.first); }

void count(uint64_t GuardRegion::* counter, uint64_t by = 1) { std::atomic_ref(ledger.region().*counter).fetch_add(by, std::memory_order_relaxed); }

uint64_t mappings() { return (protected_live + chunks.hole_count()) * kMappingsEach + chunks.open_count(); }
bool affords(uint64_t more) { return mappings() + more <= settings.budget_mappings; }

// The numbers that decide are our own: the black box can be read and harmed by others.
void tell_totals() {
  GuardRegion& region = ledger.region();
  region.live = live;
  region.live_bytes = live_bytes;
  region.most_bytes = most_bytes;
  region.mappings = mappings();
}

// Also in a forked child, whose black box may be an empty one.
void publish() {
  GuardRegion& region = ledger.region();
  region.mechanism = static_cast<uint32_t>(mechanism.load(std::memory_order_relaxed));
  region.alignment = static_cast<uint32_t>(settings.alignment);
  region.underrun = settings.underrun;
  region.budget_bytes = settings.budget_bytes;
  region.budget_mappings = settings.budget_mappings;
  region.small_low = reinterpret_cast<uint64_t>(small.low());
  region.small_high = reinterpret_cast<uint64_t>(small.high());
  region.large_low = reinterpret_cast<uint64_t>(large.low());
  region.large_high = reinterpret_cast<uint64_t>(large.high());
  region.armed = (pytracer_guarding & kArmed) != 0;
  tell_totals();
}

// mlockall() makes the kernel refuse markers; protection still works.
void use_protection(int error) {
  auto markers = GuardMechanism::kMarkers;
  if (!mechanism.compare_exchange_strong(markers, GuardMechanism::kProtection)) return;
  ledger.region().mechanism = static_cast<uint32_t>(GuardMechanism::kProtection);
  ledger.region().fallback_errno = error;
  recorder::note("guard mode: the kernel refuses MADV_GUARD_INSTALL from now on; pages are protected with mprotect instead");
}

void lock_before_fork() { pthread_mutex_lock(&lock); }
void unlock_after_fork() { pthread_mutex_unlock(&lock); }
void begin_in_child() {
  inherited_until = last_number;
  publish();
  unlock_after_fork();
}

// ---- one storage ----

void lay_out(Slot& slot, size_t nbytes) {
  const Arena& arena = arena_of(slot);
  size_t pages = round_up(settings.underrun ? nbytes : round_up(nbytes, settings.alignment), page_bytes);
  char* begin = arena.unit(slot.first);
  char* end = arena.unit(slot.first + slot.units - 1);
  slot.low = settings.underrun ? begin : end - pages;
  slot.high = slot.low + pages;
  slot.base = settings.underrun ? begin : end - round_up(nbytes, settings.alignment);
  slot.nbytes = nbytes;
}

struct Placed {
  uint32_t slot = Ledger::kNone;
  bool again = false;  // markers were refused: once more with protection
};

Placed refused(uint32_t slot, uint64_t GuardRegion::* counter) {
  if (slot != Ledger::kNone) ledger.give_back(slot);
  count(counter);
  return {};
}

Placed place(size_t nbytes) {
  Locked locked;
  size_t pages = round_up(settings.underrun ? nbytes : round_up(nbytes, settings.alignment), page_bytes);
  bool is_large = pages >= kLargeBytes;
  bool markers = !is_large && mechanism.load(std::memory_order_relaxed) == GuardMechanism::kMarkers;
  if (nbytes > settings.budget_bytes || live_bytes + pages > settings.budget_bytes) return refused(Ledger::kNone, &GuardRegion::refused_bytes);
  if (!markers && !affords(kMappingsEach)) return refused(Ledger::kNone, &GuardRegion::refused_mappings);
  uint32_t index = ledger.take();
  if (index == Ledger::kNone) return refused(index, &GuardRegion::refused_records);
  Slot& slot = ledger.slot(index);
  slot.large = is_large;
  Arena& arena = arena_of(slot);
  slot.units = static_cast<uint32_t>(round_up(pages, arena.unit_bytes()) / arena.unit_bytes()) + 1;
  uint32_t before = arena.cursor();
  char* high = arena.high();
  slot.first = arena.place(slot.units, [&](uint32_t first, uint32_t units) { return markers || is_large ? 0 : chunks.behind_open(first, units); });
  if (arena.high() != high) publish();
  if (slot.first == Arena::kNowhere) return refused(index, &GuardRegion::refused_records);
  if (markers) {
    int error = chunks.open_all(slot.first, slot.units - 1, [] { return affords(1); });
    if (error == Chunks::kOverBudget) return refused(index, &GuardRegion::refused_mappings);
    if (error != 0) {
      ledger.give_back(index);
      use_protection(error);
      return {Ledger::kNone, true};
    }
  } else {
    protected_live++;
  }
  if (!is_large) chunks.enter(slot.first, slot.units - 1, before);
  lay_out(slot, nbytes);
  slot.occupied = true;
  slot.number = ++last_number;
  arena.own(slot.first, slot.units, index);
  live++;
  live_bytes += pages;
  most_bytes = std::max(most_bytes, live_bytes);
  tell_totals();
  return {index};
}

// The book-keeping of `place`, taken back.
void leave(const Slot& slot, bool in_chunk) {
  if (!in_chunk) protected_live--;
  if (!slot.large) chunks.leave(slot.first, slot.units - 1);
  live--;
  live_bytes -= static_cast<uint64_t>(slot.high - slot.low);
  tell_totals();
}

const char* canary_low(const Slot& slot) { return std::max<const char*>(slot.low, slot.base - kMostCanary); }
const char* canary_high(const Slot& slot) { return std::min<const char*>(slot.high, slot.base + slot.nbytes + kMostCanary); }

// Of what a forked child inherited, the parent may have done the damage, and will find it.
bool is_own(const Slot& slot) { return slot.number > inherited_until; }

void look_for_damage(uint32_t index) {
  const Slot& slot = ledger.slot(index);
  if (!is_own(slot)) return;
  const char* end = slot.base + slot.nbytes;
  if (Damage behind = check_canary(end, canary_high(slot), slot.base); behind.nbytes != 0) ledger.write_damage(index, 1, behind);
  if (Damage before = check_canary(canary_low(slot), slot.base, slot.base); before.nbytes != 0) ledger.write_damage(index, 2, before);
}

bool make_accessible(const Slot& slot) {
  auto nbytes = static_cast<size_t>(slot.high - slot.low);
  return in_open_chunk(slot) ? remove_markers(slot.low, nbytes) : unprotect(slot.low, nbytes, slot.large);
}

// True when an access to the pages faults from now on.
bool make_inaccessible(const Slot& slot) {
  auto nbytes = static_cast<size_t>(slot.high - slot.low);
  if (slot.large) return seal(large.unit(slot.first), large.unit_bytes() * (slot.units - 1), true);  // page tables, too
  if (!in_open_chunk(slot)) return seal(slot.low, nbytes, false);
  if (set_markers(slot.low, nbytes)) return true;
  int error = errno;
  Locked locked;
  use_protection(error);
  if (!affords(kMappingsEach) || !seal(slot.low, nbytes, false)) return false;
  chunks.add_hole(slot.first);
  return true;
}

// Another process's view of our memory: EFAULT instead of a fault where another thread frees the storage meanwhile.
size_t copy(char* to, const char* from, const char* end) {
  auto nbytes = static_cast<size_t>(end - from);
  iovec local{to, nbytes}, remote{const_cast<char*>(from), nbytes};
  return from < end && process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(nbytes) ? nbytes : 0;
}

void look_from_outside(uint32_t index) {
  const Slot& slot = ledger.slot(index);
  const char* end = slot.base + slot.nbytes;
  struct {
    const char *from, *to;
  } sides[] = {{end, canary_high(slot)}, {canary_low(slot), slot.base}};
  char bytes[kMostCanary];
  for (uint32_t side = 0; side < 2; side++) {
    size_t nbytes = copy(bytes, sides[side].from, sides[side].to);
    Damage damage = check_canary(bytes, bytes + nbytes, bytes);
    damage.offset += sides[side].from - slot.base;
    if (damage.nbytes != 0) ledger.write_damage(index, side + 1, damage);
  }
}

int open_pool(const pytracer_guard_settings& wanted, const char*& what) {
  page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (!ledger.open(std::min(wanted.records, kMostSlots))) {
    what = "the black box has no room for the records of guarded storages";
    return ENOSPC;
  }
  if (!small.open(kSmallPool, page_bytes, false, ledger.slots()) || !large.open(kLargePool, kLargeBytes, true, ledger.slots()) ||
      !chunks.prepare(small)) {
    what = "there is no address space for guarded storages";
    return ENOMEM;
  }
  int error = wanted.protection_only != 0 ? -1 : try_markers();
  mechanism.store(error == 0 ? GuardMechanism::kMarkers : GuardMechanism::kProtection, std::memory_order_relaxed);
  ledger.region().fallback_errno = error;
  pthread_atfork(lock_before_fork, unlock_after_fork, begin_in_child);
  return 0;
}

}  // namespace

int open(const pytracer_guard_settings& wanted, const char*& what) noexcept {
  Locked locked;
  if ((pytracer_guarding & kPool) == 0)
    if (int error = open_pool(wanted, what)) return error;
  settings = {wanted.budget_bytes, wanted.budget_mappings, wanted.alignment, wanted.underrun != 0};
  ledger.region().every = wanted.every;
  ledger.region().min_bytes = wanted.min_bytes;
  set_sampling(wanted.every, wanted.min_bytes);
  __atomic_store_n(&pytracer_guarding, kArmed | kPool, __ATOMIC_RELEASE);
  publish();
  return 0;
}

void pause() noexcept {
  Locked locked;
  if ((pytracer_guarding & kPool) == 0) return;
  __atomic_store_n(&pytracer_guarding, kPool, __ATOMIC_RELEASE);
  publish();
}

void* allocate(size_t nbytes, pytracer_who who) noexcept {
  if (stopped.load(std::memory_order_relaxed)) return nullptr;
  for (int tries = 0; tries < 2; tries++) {
    Placed placed = place(nbytes);
    if (placed.again) continue;
    if (placed.slot == Ledger::kNone) return nullptr;  // counted there
    Slot& slot = ledger.slot(placed.slot);
    bool in_chunk = in_open_chunk(slot);
    if (make_accessible(slot)) {
      fill_canary(const_cast<char*>(canary_low(slot)), slot.base);
      fill_canary(slot.base + slot.nbytes, canary_high(slot));
      ledger.write_birth(placed.slot, who);
      ready[placed.slot].store(true, std::memory_order_release);
      count(&GuardRegion::guarded);
      return slot.base;
    }
    int error = errno;
    Locked locked;
    leave(slot, in_chunk);
    ledger.give_back(placed.slot);
    if (!in_chunk) break;
    use_protection(error);
  }
  count(&GuardRegion::refused_system);
  return nullptr;
}

bool owns(const void* at) noexcept { return (pytracer_guarding & kPool) != 0 && (small.contains(at) || large.contains(at)); }

void stop() noexcept {
  stopped.store(true, std::memory_order_relaxed);
  if ((pytracer_guarding & kPool) != 0) __atomic_store_n(&pytracer_guarding, kPool, __ATOMIC_RELEASE);
}

void release(void* at, pytracer_who who) noexcept {
  if (stopped.load(std::memory_order_relaxed)) return;
  uint32_t index = (small.contains(at) ? small : large).owner_of(at) - 1;
  bool known = index < ledger.count() && ledger.slot(index).occupied && ledger.slot(index).base == at;
  if (!known || !ready[index].exchange(false, std::memory_order_acq_rel)) {
    recorder::note("guard mode: a guarded storage was freed a second time, or by an address inside of it; nothing was done");
    return;
  }
  Slot& slot = ledger.slot(index);
  bool in_chunk = in_open_chunk(slot);
  ledger.write_end(index, who);  // first: soon an access faults, and must be explained
  look_for_damage(index);
  if (!make_inaccessible(slot)) {
    drop(slot.low, static_cast<size_t>(slot.high - slot.low));
    count(&GuardRegion::unsealed);
  }
  Locked locked;
  leave(slot, in_chunk);
  ledger.retire(index);
  count(&GuardRegion::quarantined);
}

void forget_box() noexcept { ledger.forget_box(); }

void look_at_live() noexcept {
  if ((pytracer_guarding & kPool) == 0 || pthread_mutex_trylock(&lock) != 0) return;
  for (uint32_t i = 0; i < ledger.count(); i++)
    if (ledger.slot(i).occupied && is_own(ledger.slot(i)) && ready[i].load(std::memory_order_acquire)) look_from_outside(i);
  pthread_mutex_unlock(&lock);
}

}  // namespace pytracer::guard

using namespace pytracer;

extern "C" {

int pytracer_guard_open(const struct pytracer_guard_settings* settings, char* error, size_t error_bytes) {
  const char* what = "nothing is recorded";
  int problem = pytracer_recording() != 0 ? guard::open(*settings, what) : EINVAL;
  if (problem != 0) snprintf(error, error_bytes, "%s", what);
  return problem;
}
void pytracer_guard_pause(void) { guard::pause(); }
int pytracer_guard_markers(void) { return guard::try_markers(); }
int pytracer_guard_chooses(size_t nbytes) { return guard::chosen(nbytes); }
void* pytracer_guard_allocate(size_t nbytes, pytracer_who who) { return guard::allocate(nbytes, who); }
int pytracer_guard_owns(const void* at) { return guard::owns(at); }
void pytracer_guard_free(void* at, pytracer_who who) { guard::release(at, who); }

}  // extern "C"
