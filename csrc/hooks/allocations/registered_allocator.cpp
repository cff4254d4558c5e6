// A CPU allocator that the program registered, wrapped: it need not call c10::alloc_cpu. Also torch's own where that cannot be
// intercepted.
#include "hooks/allocations/registered_allocator.h"

#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/allocations/cpu_allocator.h"
#include "hooks/allocations/guarded.h"
#include "hooks/hooks.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace pytracer::hooks {
namespace {

using blackbox::Origin;

c10::Allocator* original = nullptr;
c10::DeleterFnPtr original_deleter = nullptr;
std::atomic<bool> on{false};

// Stateless, since raw_deleter() promises one function for all storages: the context is the data.
void deleter(void* data) {
  if (is_guarded(data)) return free_guarded(data, Notify::kProfiler);
  if (data != nullptr && on.load(std::memory_order_relaxed)) record_free(data);  // before the memory is released
  InsideAnother inside;
  original_deleter(data);
}

class RecordingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (void* data = guarded(nbytes, Origin::kCpuAllocator, Notify::kProfiler)) return {data, data, &deleter, c10::Device(c10::DeviceType::CPU)};
    c10::DataPtr data = original_allocate(nbytes);
    // Another context or deleter: an allocator of an unknown kind. Leave its pointer alone.
    if (data.get() != nullptr && data.get() == data.get_context() && data.compare_exchange_deleter(original_deleter, &deleter) &&
        on.load(std::memory_order_relaxed))
      record_storage(data.get(), nbytes, Origin::kCpuAllocator);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &deleter; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get() == data.get_context(); }
  void copy_data(void* to, const void* from, size_t nbytes) const override { original->copy_data(to, from, nbytes); }

 private:
  static c10::DataPtr original_allocate(size_t nbytes) {
    InsideAnother inside;
    return original->allocate(nbytes);
  }
};

RecordingAllocator* wrapper = nullptr;  // immortal: live storages point to it

const char* install(Level) {
  if (c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator() && default_allocator_is_intercepted()) return nullptr;
  if (!pytracer_open_storages()) return "no room for the table of storages";
  if (wrapper == nullptr) {
    original = c10::GetCPUAllocator();
    original_deleter = original->raw_deleter();
    if (original_deleter == nullptr) return "the CPU allocator has no raw deleter: storages cannot be followed";
    wrapper = new RecordingAllocator();
  }
  c10::Allocator* now = c10::GetCPUAllocator();
  if (now != wrapper && now != original) return "another CPU allocator was registered since: its storages cannot be followed";
  on.store(true, std::memory_order_release);
  set_another_wrapped(true);
  c10::SetCPUAllocator(wrapper, 0);  // 0, the default allocator's priority: a higher one can never be lowered again
  if (c10::GetCPUAllocator() != wrapper) return "another CPU allocator was registered with a higher priority";
  return nullptr;
}

void uninstall() {
  if (!on.exchange(false, std::memory_order_acq_rel)) return;
  set_another_wrapped(false);
  if (c10::GetCPUAllocator() == wrapper) c10::SetCPUAllocator(original, 0);
}

}  // namespace

bool is_wrapped_deleter(c10::DeleterFnPtr asked) noexcept { return wrapper != nullptr && (asked == &deleter || asked == original_deleter); }

const Hook kRegisteredAllocator{"registered-allocator", install, uninstall};

}  // namespace pytracer::hooks
