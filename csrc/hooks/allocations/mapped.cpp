// Shared memory and mapped files: at::MapAllocator and those derived from it, which make every DataPtr of share_memory_(),
// torch.from_file and torch.load(mmap=True). torch compares the DataPtr's deleter, so the end is recorded in close().
#include "core/core.h"
#include "hooks/allocations/cpu_allocator.h"
#include "hooks/allocations/external.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"
#include "hooks/support/got_patch.h"

#include <ATen/MapAllocator.h>

#include <dlfcn.h>
#include <unistd.h>
#include <atomic>
#include <climits>
#include <string>
#include <string_view>

namespace pytracer::hooks {

// Virtual in torch: declared by their symbols, since a pointer to a virtual member is not an address.
void close_mapped(at::MapAllocator*) __asm__("_ZN2at12MapAllocator5closeEv");
void close_counted(at::MapAllocator*) __asm__("_ZN2at22RefcountedMapAllocator5closeEv");

namespace {

using blackbox::Origin;

constexpr const char* kNoName = "filename not specified";  // torch 2.13, MapAllocator.cpp: known by a descriptor only

std::atomic<bool> on{false};

using MakeByName = at::DataPtr (*)(std::string_view, int, size_t, size_t*);
using MakeByDescriptor = at::DataPtr (*)(at::WithFd, const char*, int, int, size_t, size_t*);
using MakeManaged = at::DataPtr (*)(const char*, const char*, int, size_t);  // libshm's THManagedMapAllocator
using Close = void (*)(at::MapAllocator*);
using FromManaged = void* (*)(const at::DataPtr&);
MakeManaged original_managed = nullptr;
FromManaged from_managed = nullptr;

at::DataPtr seen(at::DataPtr data, size_t nbytes) {
  if (on.load(std::memory_order_relaxed) && data.get() != nullptr) record_mapped(data.get_context(), data.get(), nbytes, false);
  return data;
}

at::DataPtr make_by_name(std::string_view name, int flags, size_t nbytes, size_t* actual) {
  size_t mapped = nbytes;
  at::DataPtr data = at::MapAllocator::makeDataPtr(name, flags, nbytes, &mapped);
  if (actual != nullptr) *actual = mapped;
  return seen(std::move(data), mapped);
}
at::DataPtr make_by_descriptor(at::WithFd tag, const char* name, int fd, int flags, size_t nbytes, size_t* actual) {
  size_t mapped = nbytes;
  at::DataPtr data = at::MapAllocator::makeDataPtr(tag, name, fd, flags, nbytes, &mapped);
  if (actual != nullptr) *actual = mapped;
  return seen(std::move(data), mapped);
}
at::DataPtr make_managed(const char* manager, const char* name, int flags, size_t nbytes) {
  return seen(original_managed(manager, name, flags, nbytes), nbytes);
}

// Called more than once for one mapping, by each class on the way; only the first has a storage.
template <Close original>
void close(at::MapAllocator* mapping) {
  if (uint64_t number = pytracer_external_of(reinterpret_cast<uint64_t>(mapping))) pytracer_external_freed(number, detailed_call_site);
  original(mapping);
}

std::vector<GotPatch> patches(Level) {
  auto address = [](auto function) { return reinterpret_cast<void*>(function); };
  if (void* libshm = dlopen("libshm.so", RTLD_NOLOAD | RTLD_LAZY)) {  // not linked: only torch's Python half needs it
    original_managed = reinterpret_cast<MakeManaged>(dlsym(libshm, "_ZN21THManagedMapAllocator11makeDataPtrEPKcS1_im"));
    from_managed = reinterpret_cast<FromManaged>(dlsym(libshm, "_ZN21THManagedMapAllocator11fromDataPtrERKN3c107DataPtrE"));
  }
  return {{address(static_cast<MakeByName>(at::MapAllocator::makeDataPtr)), address(make_by_name)},
          {address(static_cast<MakeByDescriptor>(at::MapAllocator::makeDataPtr)), address(make_by_descriptor)},
          {address(original_managed), address(make_managed)},
          {address(close_mapped), address(close<close_mapped>)},
          {address(close_counted), address(close<close_counted>)}};
}

const char* install(Level) {
  if (patched_slots(reinterpret_cast<void*>(close<close_mapped>)) + patched_slots(reinterpret_cast<void*>(close<close_counted>)) == 0)
    return "at::MapAllocator::close is not called between libraries: shared memory is not seen";
  on.store(true, std::memory_order_release);
  return nullptr;
}

// The end of existing mappings is still recorded.
void uninstall() {
  on.store(false, std::memory_order_release);
  auto there = patches(Level::kDefault);
  patch_got({{there[0].to, there[0].from}, {there[1].to, there[1].from}, {there[2].to, there[2].from}});
}

}  // namespace

bool is_mapped(const c10::DataPtr& data) {
  return at::MapAllocator::fromDataPtr(data) != nullptr || at::RefcountedMapAllocator::fromDataPtr(data) != nullptr ||
         (from_managed != nullptr && from_managed(data) != nullptr);
}

void record_mapped(void* owner, const void* data, size_t nbytes, bool preexisting) noexcept {
  try {
    const auto& mapping = *static_cast<at::MapAllocator*>(owner);
    bool shared_memory = (mapping.flags() & at::ALLOCATOR_MAPPED_SHAREDMEM) != 0;
    std::string file = mapping.filename();
    if (file == kNoName) file.clear();
    char here[PATH_MAX];
    if (!shared_memory && !file.empty() && file[0] != '/' && getcwd(here, sizeof here) != nullptr) file = std::string(here) + '/' + file;
    pytracer_external birth{};
    birth.addr = reinterpret_cast<uint64_t>(data);
    birth.nbytes = nbytes;
    birth.identity = reinterpret_cast<uint64_t>(owner);
    birth.file = file.c_str();
    birth.origin = static_cast<uint32_t>(shared_memory ? Origin::kSharedMemory : Origin::kMappedFile);
    birth.preexisting = preexisting;
    if (!preexisting) {
      CallSite site = detailed_call_site();
      birth.site_id = site.id;
      birth.site_where = site.where;
    }
    pytracer_external_allocated(&birth);
  } catch (...) {
    pytracer_count_hook_error();
  }
}

const Hook kMapped{"mapped-storages", install, uninstall, patches};

}  // namespace pytracer::hooks
