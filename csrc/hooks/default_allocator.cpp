// c10::alloc_cpu and c10::free_cpu: below every CPU allocator of torch. torch.UntypedStorage calls them past the registered one,
// and what was allocated before the recording began is freed through them.
#include "../blackbox/layout.h"
#include "../recorder/core.h"
#include "cpu_allocator.h"
#include "guarded.h"
#include "hooks.h"
#include "redirect.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>

namespace pytracer::hooks {
namespace {

std::atomic<bool> on{false};
std::atomic<bool> guards{false};  // what is allocated here is freed here
std::atomic<int> seen_while_off{0};

void* allocate(size_t nbytes) {
  if (t_inside_allocator) return c10::alloc_cpu(nbytes);  // our own slot is not redirected
  if (!on.load(std::memory_order_relaxed)) {
    seen_while_off |= 1;
    return c10::alloc_cpu(nbytes);
  }
  if (guards.load(std::memory_order_relaxed))
    if (void* data = guarded(nbytes, blackbox::Origin::kDefaultAllocator)) return data;
  void* data = c10::alloc_cpu(nbytes);
  if (data != nullptr) record_storage(data, nbytes, static_cast<uint32_t>(blackbox::Origin::kDefaultAllocator));
  return data;
}

void release(void* data) {
  if (is_guarded(data)) return free_guarded(data, blackbox::Origin::kDefaultAllocator);
  if (!t_inside_allocator) {
    if (!on.load(std::memory_order_relaxed))
      seen_while_off |= 2;
    else if (data != nullptr)
      pytracer_storage_freed(data, who_frees);  // before the memory is given back
  }
  c10::free_cpu(data);
}

const Redirection kThere[] = {{reinterpret_cast<void*>(c10::alloc_cpu), reinterpret_cast<void*>(allocate)},
                              {reinterpret_cast<void*>(c10::free_cpu), reinterpret_cast<void*>(release)}};

// Whether the default allocator calls us for both: a guarded storage must not reach free().
bool both_are_ours() {
  seen_while_off = 0;
  c10::GetDefaultCPUAllocator()->allocate(1).clear();
  return seen_while_off == 3;
}

std::vector<Redirection> redirections(Level) { return {kThere[0], kThere[1]}; }

const char* install(Level) {
  if (slots_led_to(kThere[0].to) == 0 || slots_led_to(kThere[1].to) == 0)
    return "c10::alloc_cpu is not called between libraries: torch.UntypedStorage is not seen";
  guards.store(both_are_ours(), std::memory_order_relaxed);
  on.store(true, std::memory_order_release);
  return guards.load(std::memory_order_relaxed) ? nullptr : "c10's allocator is not seen at both ends: torch.UntypedStorage is not guarded";
}

// Guarded storages that live on are still freed here.
void uninstall() {
  on.store(false, std::memory_order_release);
  redirect({{kThere[0].to, kThere[0].from}});
  if (__atomic_load_n(&pytracer_guarding, __ATOMIC_RELAXED) == 0) redirect({{kThere[1].to, kThere[1].from}});
}

}  // namespace

const Hook kDefaultAllocator{"default-allocator", install, uninstall, redirections};

}  // namespace pytracer::hooks
