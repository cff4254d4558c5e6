#include "hooks/allocations/external.h"

#include "core/core.h"
#include "hooks/allocations/cpu_allocator.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"
#include "hooks/support/got_patch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>

namespace pytracer::hooks {
namespace {

using blackbox::Origin;
using Deleter = std::function<void(void*)>;

at::Tensor make_tensor(at::TensorMaker* maker);
using MakeTensor = at::Tensor (*)(at::TensorMaker*);

std::atomic<bool> on{false};
MakeTensor original_make_tensor = nullptr;
bool through_core = false;  // the preloaded core forwards calls here; otherwise our own GOT patch does
c10::DeleterFnPtr function_deleter = nullptr;
std::mutex wrapping;  // two threads may find the same storage at once

// Records that the memory is released, then calls the original. Copies share the number: the first end counts.
struct Ending {
  Deleter original;
  uint64_t number;
  void operator()(void* data) const {
    pytracer_external_freed(number, detailed_call_site);
    if (original) original(data);
  }
};

// The class of a deleter shows what created the storage: each of torch's factories has a lambda of its own.
Origin origin_of(const Deleter& deleter) {
  const char* name = deleter ? deleter.target_type().name() : "";
  if (strstr(name, "tensor_from_numpy") != nullptr) return Origin::kNumpy;
  if (strstr(name, "tensor_frombuffer") != nullptr) return Origin::kBuffer;
  if (strstr(name, "DLPack") != nullptr || strstr(name, "DLManaged") != nullptr) return Origin::kDlpack;
  return Origin::kBlob;
}

// The member was a unique_ptr with that deleter before 2.13.
template <class Context>
Deleter& deleter_in(Context& context) {
  if constexpr (requires { context.deleter_; })
    return context.deleter_;
  else
    return context.ptr_.get_deleter();
}

uint64_t record(const void* data, size_t nbytes, Origin origin, bool preexisting) {
  pytracer_external birth{};
  birth.addr = reinterpret_cast<uint64_t>(data);
  birth.nbytes = nbytes;
  birth.origin = static_cast<uint32_t>(origin);
  birth.preexisting = preexisting;
  if (!preexisting) {
    CallSite site = detailed_call_site();
    birth.site_id = site.id;
    birth.site_where = site.where;
  }
  return pytracer_external_allocated(&birth);
}

// The deleter is wrapped in place: context and function pointer of the DataPtr, which torch compares, do not change.
void wrap(Deleter& deleter, const c10::StorageImpl& storage, bool preexisting) {
  if (uint64_t number = record(storage.data_ptr().get(), storage.nbytes(), origin_of(deleter), preexisting))
    deleter = Ending{std::move(deleter), number};
}

bool is_wrapped(const Deleter& deleter) { return deleter && deleter.target<Ending>() != nullptr; }

// The storage is new: no other thread has seen it.
void follow_new(const c10::Storage& storage) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  const c10::DataPtr& data = impl.data_ptr();
  if (data.get() == nullptr || impl.nbytes() == 0 || !data.device().is_cpu()) return;
  if (data.get_deleter() == function_deleter) {
    auto& deleter = deleter_in(*static_cast<c10::InefficientStdFunctionContext*>(data.get_context()));
    if (!is_wrapped(deleter)) wrap(deleter, impl, false);
  } else if (data.get_context() == nullptr) {
    // Borrowed without a deleter: it gets one that only records the end.
    uint64_t number = record(data.get(), impl.nbytes(), Origin::kBlob, false);
    if (number != 0) impl.set_data_ptr_noswap(c10::InefficientStdFunctionContext::makeDataPtr(data.get(), Ending{{}, number}, data.device()));
  } else {
    pytracer_count_unfollowed();  // a context and a plain function, which the program may compare
  }
}

at::Tensor make_tensor(at::TensorMaker* maker) {
  at::Tensor tensor = original_make_tensor(maker);
  if (on.load(std::memory_order_relaxed) && tensor.defined() && tensor.has_storage()) {
    try {
      follow_new(tensor.storage());
    } catch (...) {
      pytracer_count_hook_error();
    }
  }
  return tensor;
}

std::vector<GotPatch> patches(Level) {
  void* torchs = nullptr;
  pytracer_register_make_tensor(nullptr, &torchs);
  original_make_tensor = reinterpret_cast<MakeTensor>(torchs);
  if (torchs == nullptr) return {};
  through_core = pytracer_register_make_tensor(reinterpret_cast<void*>(make_tensor), nullptr) != 0;
  if (through_core) return {};
  return {{torchs, reinterpret_cast<void*>(make_tensor)}};
}

const char* install(Level) {
  static char nothing;
  function_deleter = c10::InefficientStdFunctionContext::makeDataPtr(&nothing, [](void*) {}, c10::kCPU).get_deleter();
  if (original_make_tensor == nullptr) return "torch has no TensorMaker::make_tensor: from_numpy, DLPack and from_blob are not seen";
  if (!through_core && patched_slots(reinterpret_cast<void*>(make_tensor)) == 0)
    return "TensorMaker::make_tensor is not called between libraries: from_numpy, DLPack and from_blob are not seen";
  on.store(true, std::memory_order_release);
  return nullptr;
}

void uninstall() {
  on.store(false, std::memory_order_release);
  if (through_core)
    pytracer_register_make_tensor(nullptr, nullptr);
  else
    patch_got({{reinterpret_cast<void*>(make_tensor), reinterpret_cast<void*>(original_make_tensor)}});
}

Followed follow_met(const c10::Storage& storage, bool preexisting) {
  const c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  const c10::DataPtr& data = impl.data_ptr();
  void* context = data.get_context();
  if (is_cpu_deleter(data.get_deleter()) && context == data.get()) {
    pytracer_storage_allocated(data.get(), impl.nbytes(), static_cast<uint32_t>(Origin::kBeforeEnable), {});
    return Followed::kYes;
  }
  if (context != nullptr && data.get_deleter() == function_deleter) {
    auto& deleter = deleter_in(*static_cast<c10::InefficientStdFunctionContext*>(context));
    if (!is_wrapped(deleter)) wrap(deleter, impl, preexisting);
    return Followed::kYes;
  }
  if (is_mapped(data)) {
    record_mapped(context, data.get(), impl.nbytes(), preexisting);
    return Followed::kYes;
  }
  return Followed::kNo;
}

}  // namespace

Followed follow(const c10::Storage& storage, bool preexisting) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get() == nullptr || storage.nbytes() == 0 || !data.device().is_cpu()) return Followed::kNoMemory;
  if (pytracer_storage_known(data.get()) != 0) return Followed::kKnown;
  try {
    // No waiting: in a forked child the holder of the mutex may not exist. The storage will be found again.
    std::unique_lock lock(wrapping, std::try_to_lock);
    return lock.owns_lock() ? follow_met(storage, preexisting) : Followed::kNo;
  } catch (...) {
    pytracer_count_hook_error();
    return Followed::kNo;
  }
}

const Hook kExternal{"foreign-storages", install, uninstall, patches};

}  // namespace pytracer::hooks
