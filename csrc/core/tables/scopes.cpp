#include "core/tables/scopes.h"

#include "core/file/journal.h"
#include "core/file/regions.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"

#include <atomic>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

constinit thread_local uint32_t t_scope __attribute__((tls_model("initial-exec"))) = 0;
std::atomic<ScopedTensor*> ring{nullptr};
std::atomic<uint64_t> newest{0};
std::atomic_flag opening = ATOMIC_FLAG_INIT;

}  // namespace

uint32_t enter_scope(uint32_t id) noexcept {
  uint32_t before = t_scope;
  t_scope = id;
  return before;
}

uint32_t current_scope() noexcept { return t_scope; }

bool open_scoped_tensors() noexcept {
  if (ring.load(std::memory_order_acquire) != nullptr) return true;
  if (opening.test_and_set(std::memory_order_acquire)) return false;  // another thread does, or it has failed
  auto* slots = static_cast<ScopedTensor*>(add_region(RegionKind::kScopedTensors, sizeof(ScopedTensor), kScopedTensors, 0, 0));
  if (slots != nullptr) ring.store(slots, std::memory_order_release);
  return slots != nullptr;
}

void scoped_tensors(TensorRole role, const ScopedTensor* tensors, size_t count) noexcept {
  ScopedTensor* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr || count == 0) return;
  uint32_t epoch = tick();
  uint64_t now = crashsafe::now_ns();
  uint64_t number = newest.fetch_add(count, std::memory_order_relaxed);
  for (size_t i = 0; i < count; i++)
    crashsafe::Ring<ScopedTensor, kScopedTensors>(slots).write(++number, [&](ScopedTensor& slot) {
      slot.role = static_cast<uint32_t>(role);
      slot.addr = tensors[i].addr;
      slot.nbytes = tensors[i].nbytes;
      slot.scope_id = t_scope;
      slot.epoch = epoch;
      slot.index = static_cast<uint32_t>(i);
      slot.count = static_cast<uint32_t>(count);
      slot.mono_ns = now;
    });
}

void close_scoped_tensors() noexcept { ring.store(nullptr, std::memory_order_relaxed); }

void forget_scoped_tensors() noexcept {
  newest = 0;
  ScopedTensor* slots = ring.load(std::memory_order_relaxed);
  if (slots != nullptr) memset(static_cast<void*>(slots), 0, sizeof(ScopedTensor) * kScopedTensors);
}

}  // namespace pytracer::core
