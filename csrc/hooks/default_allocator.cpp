// c10::alloc_cpu and c10::free_cpu: below every CPU allocator of torch. torch.UntypedStorage calls them past the registered one,
// and what was allocated before the recording began is freed through them.
#include "../blackbox/layout.h"
#include "../recorder/core.h"
#include "cpu_allocator.h"
#include "hooks.h"
#include "redirect.h"

#include <c10/core/impl/alloc_cpu.h>

#include <atomic>

namespace pytracer::hooks {
namespace {

std::atomic<bool> on{false};

bool is_ours() { return !t_inside_allocator && on.load(std::memory_order_relaxed); }

void* allocate(size_t nbytes) {
  void* data = c10::alloc_cpu(nbytes);  // our own slot is not redirected
  if (data != nullptr && is_ours()) record_storage(data, nbytes, static_cast<uint32_t>(blackbox::Origin::kDefaultAllocator));
  return data;
}

void release(void* data) {
  if (data != nullptr && is_ours()) pytracer_storage_freed(data, who_frees);  // before the memory is given back
  c10::free_cpu(data);
}

const Redirection kThere[] = {{reinterpret_cast<void*>(c10::alloc_cpu), reinterpret_cast<void*>(allocate)},
                              {reinterpret_cast<void*>(c10::free_cpu), reinterpret_cast<void*>(release)}};

const char* install(Level) {
  if (redirect({kThere[0], kThere[1]}) < 2) return "c10::alloc_cpu is not called between libraries: torch.UntypedStorage is not seen";
  on.store(true, std::memory_order_release);
  return nullptr;
}

void uninstall() {
  on.store(false, std::memory_order_release);
  redirect({{kThere[0].to, kThere[0].from}, {kThere[1].to, kThere[1].from}});
}

}  // namespace

const Hook kDefaultAllocator{"default-allocator", install, uninstall};

}  // namespace pytracer::hooks
