#include "guard/guard.h"

#include "crashsafe/platform/large.h"
#include "guard/damage.h"
#include "guard/pool/pages.h"
#include "guard/pool/pool.h"
#include "guard/sampling.h"

#include <atomic>
#include <cerrno>

int pytracer_guarding = 0;

namespace pytracer::guard {
namespace {

using namespace blackbox;

decltype(Host::note) note = nullptr;  // of the host
std::atomic<bool> stopped{false};
PYTRACER_LARGE std::atomic<bool> ready[kMostSlots];  // by slot: its canaries are filled

bool make_accessible(const Slot& slot) {
  auto nbytes = static_cast<size_t>(slot.high - slot.low);
  return g_pool.in_open_chunk(slot) ? remove_markers(slot.low, nbytes) : unprotect(slot.low, nbytes, slot.large);
}

// True when an access to the pages faults from now on.
bool make_inaccessible(const Slot& slot) {
  auto nbytes = static_cast<size_t>(slot.high - slot.low);
  if (slot.large) {  // page tables, too
    const Arena& arena = g_pool.arena_of(slot);
    return seal(arena.unit(slot.first), arena.unit_bytes() * (slot.units - 1), true);
  }
  if (!g_pool.in_open_chunk(slot)) return seal(slot.low, nbytes, false);
  if (set_markers(slot.low, nbytes)) return true;
  int error = errno;
  Locked locked;
  g_pool.use_protection(error);
  if (!g_pool.affords_hole() || !seal(slot.low, nbytes, false)) return false;
  g_pool.add_hole(slot);
  return true;
}

Placed place(size_t nbytes) {
  Locked locked;
  return g_pool.place(nbytes);
}

}  // namespace

int open(const Settings& settings, const Host& host, const char*& what) noexcept {
  Locked locked;
  note = host.note;
  if ((pytracer_guarding & kPool) == 0)
    if (int error = g_pool.open(settings, host, what)) return error;
  g_pool.change(settings);
  set_sampling(settings.every, settings.min_bytes);
  __atomic_store_n(&pytracer_guarding, kArmed | kPool, __ATOMIC_RELEASE);
  g_pool.publish();
  return 0;
}

void pause() noexcept {
  Locked locked;
  if ((pytracer_guarding & kPool) == 0) return;
  __atomic_store_n(&pytracer_guarding, kPool, __ATOMIC_RELEASE);
  g_pool.publish();
}

int missing_markers() noexcept { return try_markers(); }

void* allocate(size_t nbytes, CallSite site) noexcept {
  if (stopped.load(std::memory_order_relaxed)) return nullptr;
  for (int tries = 0; tries < 2; tries++) {
    Placed placed = place(nbytes);
    if (placed.again) continue;
    if (placed.slot == Ledger::kNone) return nullptr;  // counted there
    Slot& slot = g_pool.ledger.slot(placed.slot);
    bool in_chunk = g_pool.in_open_chunk(slot);
    if (make_accessible(slot)) {
      fill_canaries(slot);
      g_pool.ledger.write_birth(placed.slot, site);
      ready[placed.slot].store(true, std::memory_order_release);
      g_pool.count(&GuardRegion::guarded);
      return slot.base;
    }
    int error = errno;
    Locked locked;
    g_pool.leave(slot, in_chunk);
    g_pool.ledger.give_back(placed.slot);
    if (!in_chunk) break;
    g_pool.use_protection(error);
  }
  g_pool.count(&GuardRegion::refused_system);
  return nullptr;
}

bool owns(const void* at) noexcept { return (pytracer_guarding & kPool) != 0 && g_pool.contains(at); }

void stop() noexcept {
  stopped.store(true, std::memory_order_relaxed);
  if ((pytracer_guarding & kPool) != 0) __atomic_store_n(&pytracer_guarding, kPool, __ATOMIC_RELEASE);
}

void release(void* at, CallSite site) noexcept {
  if (stopped.load(std::memory_order_relaxed)) return;
  Ledger& ledger = g_pool.ledger;
  uint32_t index = g_pool.slot_at(at);
  bool known = index < ledger.count() && ledger.slot(index).occupied && ledger.slot(index).base == at;
  if (!known || !ready[index].exchange(false, std::memory_order_acq_rel)) {
    note(CoreNote::kGuardWrongFree, reinterpret_cast<uint64_t>(at), 0);
    return;
  }
  Slot& slot = ledger.slot(index);
  bool in_chunk = g_pool.in_open_chunk(slot);
  ledger.write_end(index, site);  // first: from now on an access may fault, and must be explained
  look_for_damage(index);
  if (!make_inaccessible(slot)) {
    drop(slot.low, static_cast<size_t>(slot.high - slot.low));
    g_pool.count(&GuardRegion::unsealed);
  }
  Locked locked;
  g_pool.leave(slot, in_chunk);
  ledger.retire(index);
  g_pool.count(&GuardRegion::quarantined);
}

void forget_box() noexcept { g_pool.ledger.forget_box(); }

void look_at_live() noexcept {
  if ((pytracer_guarding & kPool) == 0 || !Locked::try_lock()) return;
  const Ledger& ledger = g_pool.ledger;
  for (uint32_t i = 0; i < ledger.count(); i++)
    if (ledger.slot(i).occupied && g_pool.is_own(ledger.slot(i)) && ready[i].load(std::memory_order_acquire)) look_from_outside(i);
  Locked::unlock();
}

}  // namespace pytracer::guard
