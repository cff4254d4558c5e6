// c10::alloc_cpu and c10::free_cpu, which torch's CPU allocator calls for every storage. Below the allocator, not around it: the
// registered allocator and its deleter, which torch compares, remain torch's, and a wrapper would make a small step a third slower.
// torch's own memory reporter would conflict with torch.profiler and costs three times as much (docs/reference/hooks.md).
#include "hooks/allocations/cpu_allocator.h"

#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/allocations/guarded.h"
#include "hooks/allocations/registered_allocator.h"
#include "hooks/hooks.h"
#include "hooks/support/got_patch.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>

namespace pytracer::hooks {
namespace {

using blackbox::Origin;

enum class Mode { kOff, kOn, kBelowAnother };

std::atomic<Mode> mode{Mode::kOff};
std::atomic<bool> both_ends{false};  // allocation and free are both intercepted: only then a storage may be guarded
std::atomic<int> seen_while_off{0};
constinit thread_local bool t_inside_another __attribute__((tls_model("initial-exec"))) = false;

bool guarding() { return __atomic_load_n(&pytracer_guarding, __ATOMIC_RELAXED) != 0; }

__attribute__((noinline)) void* allocate_slow_path(size_t nbytes, Mode now) {
  if (now == Mode::kOff) seen_while_off |= 1;
  if (now == Mode::kOff || (now == Mode::kBelowAnother && t_inside_another)) return c10::alloc_cpu(nbytes);
  Origin origin = now == Mode::kOn ? Origin::kCpuAllocator : Origin::kDefaultAllocator;
  if (both_ends.load(std::memory_order_relaxed))
    if (void* data = guarded(nbytes, origin, Notify::kNobody)) return data;
  void* data = c10::alloc_cpu(nbytes);
  if (data != nullptr) record_storage(data, nbytes, origin);
  return data;
}

__attribute__((noinline)) void release_slow_path(void* data, Mode now) {
  if (is_guarded(data)) return free_guarded(data, Notify::kNobody);
  if (now == Mode::kOff) seen_while_off |= 2;
  bool not_another = now == Mode::kOn || (now == Mode::kBelowAnother && !t_inside_another);
  if (not_another && data != nullptr) record_free(data);
  c10::free_cpu(data);
}

// Our own calls are not redirected.
__attribute__((hot)) void* allocate(size_t nbytes) {
  Mode now = mode.load(std::memory_order_relaxed);
  if (__builtin_expect(now != Mode::kOn || guarding(), 0)) return allocate_slow_path(nbytes, now);
  void* data = c10::alloc_cpu(nbytes);
  if (data != nullptr) record_storage(data, nbytes, Origin::kCpuAllocator);
  return data;
}

__attribute__((hot)) void release(void* data) {
  Mode now = mode.load(std::memory_order_relaxed);
  if (__builtin_expect(now != Mode::kOn || guarding(), 0)) return release_slow_path(data, now);
  if (data != nullptr) record_free(data);  // before the memory is released
  c10::free_cpu(data);
}

const GotPatch kPatch[] = {{reinterpret_cast<void*>(c10::alloc_cpu), reinterpret_cast<void*>(allocate)},
                           {reinterpret_cast<void*>(c10::free_cpu), reinterpret_cast<void*>(release)}};

bool both_ends_are_intercepted() {
  seen_while_off = 0;
  c10::GetDefaultCPUAllocator()->allocate(1).clear();
  return seen_while_off == 3;
}

std::vector<GotPatch> patches(Level) { return {kPatch[0], kPatch[1]}; }

const char* install(Level) {
  if (!pytracer_open_storages()) return "no room for the table of storages";
  if (patched_slots(kPatch[0].to) == 0 || patched_slots(kPatch[1].to) == 0)
    return "c10::alloc_cpu is not called between libraries: torch.UntypedStorage is not seen";
  both_ends.store(both_ends_are_intercepted(), std::memory_order_relaxed);
  mode.store(Mode::kOn, std::memory_order_release);
  return both_ends.load(std::memory_order_relaxed) ? nullptr : "c10's allocator is not seen at both ends: torch.UntypedStorage is not guarded";
}

// Guarded storages that live on are still freed here.
void uninstall() {
  mode.store(Mode::kOff, std::memory_order_release);
  patch_got({{kPatch[0].to, kPatch[0].from}});
  if (!guarding()) patch_got({{kPatch[1].to, kPatch[1].from}});
}

}  // namespace

InsideAnother::InsideAnother() noexcept : before_(t_inside_another) { t_inside_another = true; }
InsideAnother::~InsideAnother() { t_inside_another = before_; }

bool default_allocator_is_intercepted() noexcept {
  return mode.load(std::memory_order_relaxed) != Mode::kOff && both_ends.load(std::memory_order_relaxed);
}

void set_another_wrapped(bool wrapped) noexcept {
  if (mode.load(std::memory_order_relaxed) != Mode::kOff) mode.store(wrapped ? Mode::kBelowAnother : Mode::kOn, std::memory_order_release);
}

bool is_cpu_deleter(c10::DeleterFnPtr asked) noexcept {
  return asked != nullptr && (asked == c10::GetDefaultCPUAllocator()->raw_deleter() || is_wrapped_deleter(asked));
}

const Hook kCpuAllocator{"cpu-storages", install, uninstall, patches};

}  // namespace pytracer::hooks
