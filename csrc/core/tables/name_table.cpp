#include "core/tables/name_table.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "core/file/regions.h"
#include "core/probe/probe_torch_layout.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/install.h"
#include "crashsafe/torch/named_tensors.h"

#include <initializer_list>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint64_t kShare = 1000;  // updates take at most one part in so many of the time

uint64_t next_look_ns = 0;
bool cannot_grow = false;

uint32_t room() {
  uint32_t slots = 0;
  for (uint32_t i = 0; i < kNameChunks && g_box.names[i] != nullptr; i++) slots += kNameSlots << i;
  return slots;
}

bool grow() {
  for (uint32_t i = 0; i < kNameChunks && !cannot_grow; i++) {
    if (g_box.names[i] != nullptr) continue;
    g_box.names[i] = static_cast<NameSlot*>(add_region(RegionKind::kNames, sizeof(NameSlot), uint64_t{kNameSlots} << i, i, 0));
    return g_box.names[i] != nullptr;
  }
  return false;
}

// Under the GIL, as everything that changes slots.
NameSlot* new_slot(uint32_t& number) {
  uint32_t used = g_box.name_count.load(std::memory_order_relaxed);
  if (used == room() && !grow()) {
    cannot_grow = true;
    std::atomic_ref(g_box.header->names_dropped).fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  number = used + 1;
  g_box.name_count.store(number, std::memory_order_release);
  return crashsafe::name_slot(number);
}

// The epochs first: addresses without a valid epoch are not read.
void forget(NameSlot& slot) {
  for (uint32_t* epoch : {&slot.epoch, &slot.grad_epoch, &slot.earlier_epoch, &slot.earlier_grad_epoch}) crashsafe::SeqNumber(*epoch).hide();
  slot = {};
}

// Without handlers the addresses at a crash are not needed.
bool names_matter() { return recording() && crashsafe::handlers_installed(); }

// An object that has a slot may have been destroyed, and its memory unmapped.
uint64_t look() {
  crashsafe::CheckedReads reads;
  if (!reads.possible()) return 0;
  uint64_t start = crashsafe::now_ns();
  crashsafe::look_at_named_tensors(tick());
  uint64_t end = crashsafe::now_ns();
  next_look_ns = end + kShare * (end - start);
  return end - start;
}

}  // namespace

void refresh_names_sometimes() noexcept {
  if (g_box.name_count.load(std::memory_order_relaxed) != 0 && names_matter() && crashsafe::now_ns() >= next_look_ns) look();
}

void recount_names() noexcept { next_look_ns = 0; }

}  // namespace pytracer::core

using namespace pytracer;

extern "C" {

int pytracer_probe_torch_layout(const pytracer_torch_probe* first, const pytracer_torch_probe* second) {
  crashsafe::CheckedReads reads;
  return core::names_matter() && reads.possible() && core::probe_torch_layout(*first, *second);
}

uint32_t pytracer_name(uint32_t number, uint32_t role, uint32_t name, uint32_t parent, uint32_t flags, uint64_t object, uint32_t item_bytes,
                       uint64_t dict, uint64_t key) {
  if (!core::names_matter()) return 0;
  blackbox::NameSlot* slot = number != 0 ? crashsafe::name_slot(number) : core::new_slot(number);
  if (slot == nullptr) return 0;
  if (slot->object == 0) core::forget(*slot);
  crashsafe::SeqNumber looked_at(slot->object);
  looked_at.hide();
  slot->role = role;
  slot->name = name;
  slot->parent = parent;
  slot->flags = flags;
  slot->item_bytes = item_bytes;
  if (dict != 0) crashsafe::name_is_held(number, dict, key);
  looked_at.publish(object);
  if (role == static_cast<uint32_t>(blackbox::NameRole::kModule)) return number;
  if (crashsafe::CheckedReads reads; reads.possible()) crashsafe::look_at_new_name(*slot, core::tick());
  return number;
}

void pytracer_name_gone(uint32_t number) {
  blackbox::NameSlot* slot = core::recording() ? crashsafe::name_slot(number) : nullptr;
  if (slot != nullptr) crashsafe::SeqNumber(slot->object).hide();
}

uint64_t pytracer_refresh_names(void) { return core::names_matter() ? core::look() : 0; }

}  // extern "C"
