// CPU storages: the registered CPU allocator, wrapped. torch's own memory reporter would fight torch.profiler and costs three
// times as much (docs/hooks.md).
#include "cpu_allocator.h"

#include "../blackbox/layout.h"
#include "../recorder/core.h"
#include "guarded.h"
#include "hooks.h"
#include "who.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace pytracer::hooks {

constinit thread_local bool t_inside_allocator __attribute__((tls_model("initial-exec"))) = false;

namespace {

c10::Allocator* original = nullptr;
c10::DeleterFnPtr original_deleter = nullptr;
std::atomic<bool> on{false};

// Stateless, because raw_deleter() promises one function for all: the context is the data.
__attribute__((hot)) void deleter(void* data) {
  if (is_guarded(data)) return free_guarded(data, blackbox::Origin::kCpuAllocator);
  if (data != nullptr && on.load(std::memory_order_relaxed)) pytracer_storage_freed(data, who_frees);  // before the memory is given back
  InsideAllocator inside;
  original_deleter(data);
}

class RecordingAllocator final : public c10::Allocator {
 public:
  __attribute__((hot)) c10::DataPtr allocate(size_t nbytes) override {
    if (void* data = guarded(nbytes, blackbox::Origin::kCpuAllocator)) return {data, data, &deleter, c10::Device(c10::DeviceType::CPU)};
    c10::DataPtr data = original_allocate(nbytes);
    // Another context or deleter: an allocator that we do not know. Leave its pointer alone.
    if (data.get() != nullptr && data.get() == data.get_context() && data.compare_exchange_deleter(original_deleter, &deleter) &&
        on.load(std::memory_order_relaxed))
      record_storage(data.get(), nbytes, static_cast<uint32_t>(blackbox::Origin::kCpuAllocator));
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &deleter; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get() == data.get_context(); }
  void copy_data(void* to, const void* from, size_t nbytes) const override { original->copy_data(to, from, nbytes); }

 private:
  static c10::DataPtr original_allocate(size_t nbytes) {
    InsideAllocator inside;
    return original->allocate(nbytes);
  }
};

RecordingAllocator* wrapper = nullptr;  // immortal: live storages point to it

const char* install(Level) {
  if (!pytracer_open_storages()) return "no room for the table of storages";
  if (wrapper == nullptr) {
    original = c10::GetCPUAllocator();
    original_deleter = original->raw_deleter();
    if (original_deleter == nullptr) return "the CPU allocator has no raw deleter: storages cannot be followed";
    wrapper = new RecordingAllocator();
  }
  on.store(true, std::memory_order_release);
  c10::SetCPUAllocator(wrapper, 0);  // 0, the default allocator's priority: a higher one can never be lowered again
  if (c10::GetCPUAllocator() != wrapper) return "another CPU allocator was registered with a higher priority";
  return nullptr;
}

void uninstall() {
  on.store(false, std::memory_order_release);
  if (wrapper != nullptr && c10::GetCPUAllocator() == wrapper) c10::SetCPUAllocator(original, 0);
}

}  // namespace

bool is_recorded(const c10::DataPtr& data) noexcept { return data.get_deleter() == &deleter; }

bool is_cpu_deleter(c10::DeleterFnPtr asked) noexcept { return asked == &deleter || (asked == original_deleter && asked != nullptr); }

__attribute__((hot)) uint64_t who_frees(bool large) {
  Who who = large ? who_is_running_in_detail() : who_is_running();
  return static_cast<uint64_t>(who.where) << 32 | who.id;
}

__attribute__((hot)) void record_storage(const void* data, size_t nbytes, uint32_t origin) {
  Who who = nbytes >= blackbox::kLargeStorageBytes ? who_is_running_in_detail() : who_is_running();
  pytracer_storage_allocated(data, nbytes, origin, who.id, who.where);
}

const Hook kCpuAllocator{"cpu-storages", install, uninstall};

}  // namespace pytracer::hooks
