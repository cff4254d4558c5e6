#include "guard/damage.h"

#include "guard/canary.h"
#include "guard/pool/pool.h"

#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>

namespace pytracer::guard {
namespace {

constexpr size_t kMostCanary = 4096;

const char* canary_low(const Slot& slot) { return std::max<const char*>(slot.low, slot.base - kMostCanary); }
const char* canary_high(const Slot& slot) { return std::min<const char*>(slot.high, slot.base + slot.nbytes + kMostCanary); }

// Reads our memory as another process's: EFAULT instead of a fault where another thread frees the storage meanwhile.
size_t copy(char* to, const char* from, const char* end) {
  auto nbytes = static_cast<size_t>(end - from);
  iovec local{to, nbytes}, remote{const_cast<char*>(from), nbytes};
  return from < end && process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(nbytes) ? nbytes : 0;
}

}  // namespace

void fill_canaries(const Slot& slot) noexcept {
  fill_canary(const_cast<char*>(canary_low(slot)), slot.base);
  fill_canary(slot.base + slot.nbytes, canary_high(slot));
}

void look_for_damage(uint32_t index) noexcept {
  const Slot& slot = g_pool.ledger.slot(index);
  if (!g_pool.is_own(slot)) return;
  const char* end = slot.base + slot.nbytes;
  if (Damage behind = check_canary(end, canary_high(slot), slot.base); behind.nbytes != 0) g_pool.ledger.write_damage(index, 1, behind);
  if (Damage before = check_canary(canary_low(slot), slot.base, slot.base); before.nbytes != 0) g_pool.ledger.write_damage(index, 2, before);
}

void look_from_outside(uint32_t index) noexcept {
  const Slot& slot = g_pool.ledger.slot(index);
  const char* end = slot.base + slot.nbytes;
  struct {
    const char *from, *to;
  } sides[] = {{end, canary_high(slot)}, {canary_low(slot), slot.base}};
  char bytes[kMostCanary];
  for (uint32_t side = 0; side < 2; side++) {
    size_t nbytes = copy(bytes, sides[side].from, sides[side].to);
    Damage damage = check_canary(bytes, bytes + nbytes, bytes);
    damage.offset += sides[side].from - slot.base;
    if (damage.nbytes != 0) g_pool.ledger.write_damage(index, side + 1, damage);
  }
}

}  // namespace pytracer::guard
