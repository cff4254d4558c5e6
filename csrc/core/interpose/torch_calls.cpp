// A function of torch that extensions import: at::TensorMaker::make_tensor, behind from_blob. Preloaded, this definition precedes
// torch's, also for libraries that are loaded later. It forwards to the registered function, or to torch.
#include "core/core.h"

#include <dlfcn.h>
#include <link.h>
#include <atomic>
#include <cstdlib>

namespace {

constexpr const char* kMakeTensor = "_ZN2at11TensorMaker11make_tensorEv";

// Not trivially copyable, like at::Tensor: returned in memory of the caller.
struct Tensor {
  void* impl;
  ~Tensor();
};
using MakeTensor = Tensor (*)(void* maker);

Tensor find_and_make(void* maker);
std::atomic<MakeTensor> registered{nullptr}, torchs{find_and_make};

// Python loads torch into a scope of its own: RTLD_NEXT does not see it. Wheels may rename their libraries.
MakeTensor find_torchs() {
  auto in = [](const char* library) -> void* {
    void* handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    return handle != nullptr ? dlsym(handle, kMakeTensor) : nullptr;
  };
  if (void* found = in("libtorch_cpu.so")) return reinterpret_cast<MakeTensor>(found);
  Dl_info ours{};
  dladdr(reinterpret_cast<void*>(find_torchs), &ours);
  void* program = dlopen(nullptr, RTLD_LAZY);
  link_map* map = nullptr;
  if (program == nullptr || dlinfo(program, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return nullptr;
  for (; map != nullptr; map = map->l_next) {
    Dl_info from{};
    void* found = map->l_name != nullptr && *map->l_name != 0 ? in(map->l_name) : nullptr;
    if (found != nullptr && dladdr(found, &from) != 0 && from.dli_fbase != ours.dli_fbase) return reinterpret_cast<MakeTensor>(found);
  }
  return nullptr;
}

Tensor find_and_make(void* maker) {
  MakeTensor found = find_torchs();
  if (found == nullptr) abort();  // the caller was linked to some definition
  torchs.store(found, std::memory_order_release);
  return found(maker);
}

}  // namespace

extern "C" PYTRACER_API Tensor _ZN2at11TensorMaker11make_tensorEv(void* maker) {
  MakeTensor to = registered.load(std::memory_order_acquire);
  if (to == nullptr) to = torchs.load(std::memory_order_acquire);
  return to(maker);
}

extern "C" int pytracer_register_make_tensor(void* to, void** original) {
  MakeTensor found = find_torchs();
  if (original != nullptr) *original = reinterpret_cast<void*>(found);
  // Of the program and what was preloaded; RTLD_DEFAULT would begin with this very library.
  void* global = dlopen(nullptr, RTLD_LAZY);
  void* first = global != nullptr ? dlsym(global, kMakeTensor) : nullptr;
  if (first != reinterpret_cast<void*>(_ZN2at11TensorMaker11make_tensorEv) || found == nullptr) return 0;
  registered.store(reinterpret_cast<MakeTensor>(to), std::memory_order_release);
  return 1;
}
