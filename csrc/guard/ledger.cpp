#include "guard/ledger.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace pytracer::guard {

using namespace blackbox;

namespace {

void set_state(GuardedStorage& record, GuardedState state) {
  std::atomic_ref(record.state).store(static_cast<uint32_t>(state), std::memory_order_release);  // a reader that sees it sees the fields
}

uint32_t epoch_now() { return std::atomic_ref(g_box.header->epoch).load(std::memory_order_relaxed); }

uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }

}  // namespace

bool Ledger::open(uint32_t slots, const Host& host) noexcept {
  append_ = host.append;
  slots_ = static_cast<Slot*>(calloc(slots, sizeof(Slot)));
  queue_ = static_cast<uint32_t*>(calloc(slots, sizeof(uint32_t)));
  if (slots_ == nullptr || queue_ == nullptr) return false;
  if (region_ == nullptr) region_ = static_cast<GuardRegion*>(host.add_region(RegionKind::kGuard, sizeof(GuardRegion), 1, 0, 0));
  if (region_ == nullptr) return false;
  records_ = static_cast<GuardedStorage*>(host.add_region(RegionKind::kGuarded, sizeof(GuardedStorage), slots, 0, 0));
  count_ = slots;
  return records_ != nullptr;
}

void Ledger::forget_box() noexcept {
  static GuardRegion nowhere{};
  if (region_ != nullptr) region_ = &nowhere;
  records_ = nullptr;
}

uint32_t Ledger::take() noexcept {
  if (fresh_ < count_) return fresh_++;
  if (queued_ == 0) return kNone;
  uint32_t slot = queue_[head_];
  head_ = (head_ + 1) % count_;
  queued_--;
  return slot;
}

void Ledger::give_back(uint32_t slot) noexcept {
  slots_[slot].occupied = false;
  head_ = (head_ + count_ - 1) % count_;  // it holds nothing: first to be used again
  queue_[head_] = slot;
  queued_++;
}

void Ledger::retire(uint32_t slot) noexcept {
  slots_[slot].occupied = false;
  queue_[(head_ + queued_) % count_] = slot;
  queued_++;
}

void Ledger::write_birth(uint32_t index, CallSite site) noexcept {
  if (records_ == nullptr) return;
  const Slot& slot = slots_[index];
  GuardedStorage born{};
  born.base = address(slot.base);
  born.nbytes = slot.nbytes;
  born.low = address(slot.low);
  born.high = address(slot.high);
  born.number = slot.number;
  born.allocated_ns = crashsafe::now_ns();
  born.alloc_tid = crashsafe::sys_gettid();
  born.alloc_site_id = site.id;
  born.alloc_site_where = site.where;
  born.alloc_epoch = epoch_now();
  crashsafe::SeqSlot<GuardedStorage, &GuardedStorage::state>(records_[index]).assign(static_cast<uint32_t>(GuardedState::kLive), born);
}

void Ledger::write_end(uint32_t index, CallSite site) noexcept {
  if (records_ == nullptr) return;
  GuardedStorage& record = records_[index];
  record.freed_ns = crashsafe::now_ns();
  record.free_tid = crashsafe::sys_gettid();
  record.free_site_id = site.id;
  record.free_site_where = site.where;
  record.free_epoch = epoch_now();
  set_state(record, GuardedState::kQuarantined);
}

void Ledger::write_damage(uint32_t index, uint32_t side, const Damage& damage) noexcept {
  if (records_ == nullptr) return;
  GuardedStorage& record = records_[index];
  record.damage_side = side;
  record.damage_offset = damage.offset;
  record.damage_nbytes = damage.nbytes;
  memcpy(record.damage_bytes, damage.bytes, sizeof record.damage_bytes);
  append_(EntryKind::kGuardDamage, &record, sizeof record);
  std::atomic_ref(g_box.header->guard_damage).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace pytracer::guard
