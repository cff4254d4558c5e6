#include "crashsafe/torch/named_tensors.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/torch/torch_objects.h"

#include <sys/mman.h>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kFollowed = 2, kHeld = 4;  // NameSlot.flags
constexpr uint64_t kMostEntries = 256;

struct Place {
  uint64_t &addr, &base, &earlier_addr, &earlier_base;
  uint32_t &epoch, &earlier_epoch;
};

// An epoch is the number of two addresses, not of a slot: a slot has four such pairs, which change independently. A process killed in
// between leaves no name at a wrong address. A crash handler may update while another thread does: both find the same addresses.
void move(Place place, uint64_t addr, uint64_t base, uint32_t epoch) {
  SeqNumber valid(place.epoch), earlier(place.earlier_epoch);
  if (base != place.base) {
    earlier.hide();
    place.earlier_addr = place.addr;
    place.earlier_base = place.base;
    earlier.publish(place.epoch);
  }
  valid.hide();
  place.addr = addr;
  place.base = base;
  valid.publish(epoch);
}

void look_at_gradient(NameSlot& slot, uint64_t meta, uint32_t epoch) {
  TensorView grad{};
  if (meta == 0 || !look_at_impl(word_at(meta + torch_offsets()->meta_grad), grad) || grad.base == 0) return;
  move({slot.grad_addr, slot.grad_base, slot.earlier_grad_addr, slot.earlier_grad_base, slot.grad_epoch, slot.earlier_grad_epoch},
       grad.base + grad.offset * slot.item_bytes, grad.base, epoch);
}

void look_at(NameSlot& slot, const TensorView& tensor, uint32_t epoch) {
  slot.impl = tensor.impl;
  slot.storage_impl = tensor.storage_impl;
  slot.nbytes = tensor.numel * slot.item_bytes;
  if (tensor.base != 0)
    move({slot.addr, slot.base, slot.earlier_addr, slot.earlier_base, slot.epoch, slot.earlier_epoch}, tensor.base + tensor.offset * slot.item_bytes,
         tensor.base, epoch);
  look_at_gradient(slot, tensor.meta, epoch);
}

// Beside each chunk of names, where a slot has the flag. A process that names nothing must not reserve 4 MiB: mlockall() counts it.
struct Held {
  uint64_t dict, key;
};
constinit std::atomic<Held*> held[kNameChunks] = {};

Held* held_beside(uint32_t chunk) {
  Held* there = held[chunk].load(std::memory_order_acquire);
  if (there != nullptr) return there;
  long at = syscall(SYS_mmap, nullptr, sizeof(Held) * (kNameSlots << chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == -1) return nullptr;
  held[chunk].store(reinterpret_cast<Held*>(at), std::memory_order_release);  // under the GIL: no other thread makes one
  return reinterpret_cast<Held*>(at);
}

// The value that the dict has under the key now, which is therefore alive; 0: no tensor.
uint64_t held_object(const Held& in) {
  Table table{};
  uint64_t key = 0, value = 0;
  if (type_of(in.dict) != python_types().dict || !table_of_dict(in.dict, table)) return 0;
  for (uint64_t i = 0; i < table.count && i < kMostEntries; i++)
    if (entry_of(table, i, key, value) && key == in.key) return derives_from(type_of(value), torch_offsets()->tensor_type) ? value : 0;
  return 0;
}

bool look_at_held(NameSlot& slot, const Held& in, TensorView& tensor) {
  uint64_t object = held_object(in);
  if (object == 0 || !look_at_tensor(object, tensor) || word_at(tensor.impl) != torch_offsets()->impl_vtable) return false;
  slot.object = object;
  return true;
}

// A parameter whose module is alive. Its object may have been replaced unnoticed and be freed: then it has no references, and the vtable
// of its former TensorImpl is overwritten.
bool is_same(const NameSlot& slot, TensorView& tensor) {
  return static_cast<int64_t>(word_at(slot.object)) > 0 && look_at_tensor(slot.object, tensor) && tensor.impl == slot.impl &&
         word_at(tensor.impl) == torch_offsets()->impl_vtable;
}

bool can_look() { return torch_offsets() != nullptr && python_objects() != nullptr; }

}  // namespace

NameSlot* name_slot(uint32_t number) noexcept {
  if (number == 0 || number > g_box.name_count.load(std::memory_order_acquire)) return nullptr;
  uint32_t first = 1, slots = kNameSlots;
  for (NameSlot* chunk : g_box.names) {
    if (number < first + slots) return chunk != nullptr ? chunk + (number - first) : nullptr;
    first += slots;
    slots *= 2;
  }
  return nullptr;
}

void look_at_named_tensors(uint32_t epoch) noexcept {
  if (!can_look()) return;
  uint32_t left = g_box.name_count.load(std::memory_order_acquire), slots = kNameSlots;
  for (uint32_t c = 0; c < kNameChunks; c++) {
    NameSlot* chunk = g_box.names[c];
    const Held* in = held[c].load(std::memory_order_acquire);
    for (uint32_t i = 0; chunk != nullptr && i < slots && i < left; i++) {
      NameSlot& slot = chunk[i];
      TensorView tensor{};
      if (slot.object != 0 && (slot.flags & kHeld) != 0) {
        if (in != nullptr && look_at_held(slot, in[i], tensor)) look_at(slot, tensor, epoch);
        continue;
      }
      // Others keep the address at which they were named: a plain tensor may have been freed, and another one allocated in its place.
      if (slot.object != 0 && (slot.flags & kFollowed) != 0 && is_same(slot, tensor)) look_at(slot, tensor, epoch);
    }
    if (left <= slots) return;
    left -= slots;
    slots *= 2;
  }
}

void name_is_held(uint32_t number, uint64_t dict, uint64_t key) noexcept {
  uint32_t index = number - 1;
  for (uint32_t chunk = 0; chunk < kNameChunks; index -= kNameSlots << chunk++)
    if (index < kNameSlots << chunk) {
      if (Held* beside = held_beside(chunk)) beside[index] = {dict, key};
      return;
    }
}

void look_at_new_name(NameSlot& slot, uint32_t epoch) noexcept {
  TensorView tensor{};
  if (can_look() && look_at_tensor(slot.object, tensor)) look_at(slot, tensor, epoch);
}

void write_names() noexcept { look_at_named_tensors(std::atomic_ref(g_box.header->epoch).load(std::memory_order_acquire) + 1); }

}  // namespace pytracer::crashsafe
