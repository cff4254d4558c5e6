#include "guard/pool/pool.h"

#include "guard/pool/pages.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>

namespace pytracer::guard {
namespace {

using namespace blackbox;

constexpr size_t kSmallPool = 32ull << 30, kLargePool = 32ull << 30;  // address space only
constexpr size_t kLargeBytes = 2ull << 20;                            // below, a huge page would make a guard of 4 KiB useless
constexpr uint64_t kMappingsEach = 2;                                 // the storage, and the pages after it

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

void lock_before_fork() { pthread_mutex_lock(&mutex); }
void unlock_after_fork() { pthread_mutex_unlock(&mutex); }

}  // namespace

constinit Pool g_pool;

Locked::Locked() noexcept { pthread_mutex_lock(&mutex); }
Locked::~Locked() { pthread_mutex_unlock(&mutex); }
bool Locked::try_lock() noexcept { return pthread_mutex_trylock(&mutex) == 0; }
void Locked::unlock() noexcept { pthread_mutex_unlock(&mutex); }

void Pool::count(uint64_t GuardRegion::* counter) noexcept { std::atomic_ref(ledger.region().*counter).fetch_add(1, std::memory_order_relaxed); }

uint64_t Pool::mappings() const noexcept { return (protected_live_ + chunks_.hole_count()) * kMappingsEach + chunks_.open_count(); }
bool Pool::affords_hole() const noexcept { return affords(kMappingsEach); }

size_t Pool::page_bytes_of(size_t nbytes) const noexcept {
  return round_up(settings_.underrun ? nbytes : round_up(nbytes, settings_.alignment), page_bytes_);
}

void Pool::publish_totals() noexcept {
  GuardRegion& region = ledger.region();
  region.live = live_;
  region.live_bytes = live_bytes_;
  region.most_bytes = most_bytes_;
  region.mappings = mappings();
}

void Pool::publish() noexcept {
  GuardRegion& region = ledger.region();
  region.mechanism = static_cast<uint32_t>(mechanism_.load(std::memory_order_relaxed));
  region.alignment = settings_.alignment;
  region.underrun = settings_.underrun;
  region.budget_bytes = settings_.budget_bytes;
  region.budget_mappings = settings_.budget_mappings;
  region.small_low = reinterpret_cast<uint64_t>(small_.low());
  region.small_high = reinterpret_cast<uint64_t>(small_.high());
  region.large_low = reinterpret_cast<uint64_t>(large_.low());
  region.large_high = reinterpret_cast<uint64_t>(large_.high());
  region.armed = (pytracer_guarding & kArmed) != 0;
  publish_totals();
}

void Pool::use_protection(int error) noexcept {
  auto markers = GuardMechanism::kMarkers;
  if (!mechanism_.compare_exchange_strong(markers, GuardMechanism::kProtection)) return;
  ledger.region().mechanism = static_cast<uint32_t>(GuardMechanism::kProtection);
  ledger.region().fallback_errno = error;
  host_.note(CoreNote::kGuardProtection, 0, static_cast<uint64_t>(error));
}

void Pool::begin_in_child() {
  g_pool.inherited_until_ = g_pool.last_number_;
  g_pool.publish();
  unlock_after_fork();
}

int Pool::open(const Settings& settings, const Host& host, const char*& what) noexcept {
  host_ = host;
  page_bytes_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (!ledger.open(std::min(settings.records, kMostSlots), host)) {
    what = "the black box has no room for the records of guarded storages";
    return ENOSPC;
  }
  if (!small_.open(kSmallPool, page_bytes_, false, ledger.slots()) || !large_.open(kLargePool, kLargeBytes, true, ledger.slots()) ||
      !chunks_.prepare(small_)) {
    what = "there is no address space for guarded storages";
    return ENOMEM;
  }
  int error = settings.protection_only ? -1 : try_markers();
  mechanism_.store(error == 0 ? GuardMechanism::kMarkers : GuardMechanism::kProtection, std::memory_order_relaxed);
  ledger.region().fallback_errno = error;
  pthread_atfork(lock_before_fork, unlock_after_fork, begin_in_child);
  return 0;
}

void Pool::change(const Settings& settings) noexcept {
  settings_ = settings;
  ledger.region().every = settings.every;
  ledger.region().min_bytes = settings.min_bytes;
}

void Pool::lay_out(Slot& slot, size_t nbytes) noexcept {
  const Arena& arena = arena_of(slot);
  size_t pages = page_bytes_of(nbytes);
  char* begin = arena.unit(slot.first);
  char* end = arena.unit(slot.first + slot.units - 1);
  slot.low = settings_.underrun ? begin : end - pages;
  slot.high = slot.low + pages;
  slot.base = settings_.underrun ? begin : end - round_up(nbytes, settings_.alignment);
  slot.nbytes = nbytes;
}

Placed Pool::refuse(uint32_t slot, uint64_t GuardRegion::* counter) noexcept {
  if (slot != Ledger::kNone) ledger.give_back(slot);
  count(counter);
  return {};
}

Placed Pool::place(size_t nbytes) noexcept {
  size_t pages = page_bytes_of(nbytes);
  bool is_large = pages >= kLargeBytes;
  bool markers = !is_large && mechanism_.load(std::memory_order_relaxed) == GuardMechanism::kMarkers;
  if (nbytes > settings_.budget_bytes || live_bytes_ + pages > settings_.budget_bytes) return refuse(Ledger::kNone, &GuardRegion::refused_bytes);
  if (!markers && !affords(kMappingsEach)) return refuse(Ledger::kNone, &GuardRegion::refused_mappings);
  uint32_t index = ledger.take();
  if (index == Ledger::kNone) return refuse(index, &GuardRegion::refused_records);
  Slot& slot = ledger.slot(index);
  slot.large = is_large;
  Arena& arena = arena_for(slot);
  slot.units = static_cast<uint32_t>(round_up(pages, arena.unit_bytes()) / arena.unit_bytes()) + 1;
  uint32_t before = arena.cursor();
  char* high = arena.high();
  slot.first = arena.place(slot.units, [&](uint32_t first, uint32_t units) { return markers || is_large ? 0 : chunks_.behind_open(first, units); });
  if (arena.high() != high) publish();
  if (slot.first == Arena::kNowhere) return refuse(index, &GuardRegion::refused_records);
  if (markers) {
    int error = chunks_.open_all(slot.first, slot.units - 1, [this] { return affords(1); });
    if (error == Chunks::kOverBudget) return refuse(index, &GuardRegion::refused_mappings);
    if (error != 0) {
      ledger.give_back(index);
      use_protection(error);
      return {Ledger::kNone, true};
    }
  } else {
    protected_live_++;
  }
  if (!is_large) chunks_.enter(slot.first, slot.units - 1, before);
  lay_out(slot, nbytes);
  slot.occupied = true;
  slot.number = ++last_number_;
  arena.own(slot.first, slot.units, index);
  live_++;
  live_bytes_ += pages;
  most_bytes_ = std::max(most_bytes_, live_bytes_);
  publish_totals();
  return {index};
}

void Pool::leave(const Slot& slot, bool in_chunk) noexcept {
  if (!in_chunk) protected_live_--;
  if (!slot.large) chunks_.leave(slot.first, slot.units - 1);
  live_--;
  live_bytes_ -= static_cast<uint64_t>(slot.high - slot.low);
  publish_totals();
}

}  // namespace pytracer::guard
