// Pinned memory: torch's host allocator for CUDA. Its class grows with each version of torch, so it is not wrapped by another object: it
// gets a copy of its table of virtual functions, in which only allocate() is ours.
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/allocations/cpu_allocator.h"
#include "hooks/hooks.h"

#include <ATen/core/CachingHostAllocator.h>

#include <link.h>
#include <sys/uio.h>
#include <unistd.h>
#include <atomic>
#include <cstring>
#include <iterator>

namespace pytracer::hooks {
namespace {

using Allocate = c10::DataPtr (*)(c10::Allocator*, size_t);

// Itanium ABI: two words before the functions belong to the table, whose length is unknown. What lies behind it is never called.
struct Table {
  uintptr_t before[2], functions[64];
};

constexpr size_t kNowhere = ~static_cast<size_t>(0);
constexpr size_t kBlockWords = 16;

std::atomic<bool> on{false};
uintptr_t* object = nullptr;  // its first word is the address of its functions
uintptr_t original = 0;
Table table{};
Allocate original_allocate = nullptr;
std::atomic<c10::DeleterFnPtr> original_deleter{nullptr};
std::atomic<size_t> data_word{kNowhere};  // in a block, which is the context of its DataPtr

uintptr_t word_of(const void* block, size_t word) {
  uintptr_t value;
  memcpy(&value, static_cast<const char*>(block) + word * sizeof value, sizeof value);
  return value;
}

// torch finds the block by the context, which has not changed.
void deleter(void* block) {
  if (on.load(std::memory_order_relaxed)) record_free(reinterpret_cast<void*>(word_of(block, data_word.load(std::memory_order_relaxed))));
  original_deleter.load(std::memory_order_acquire)(block);
}

size_t find_data(const void* block, const void* data) {
  uintptr_t words[kBlockWords] = {};
  iovec local{words, sizeof words}, remote{const_cast<void*>(block), sizeof words};
  process_vm_readv(getpid(), &local, 1, &remote, 1, 0);  // a block may be shorter
  for (size_t word = 0; word < kBlockWords; word++)
    if (words[word] == reinterpret_cast<uintptr_t>(data)) return word;
  return kNowhere;
}

// Learned from the first one.
bool is_known(const c10::DataPtr& data) {
  c10::DeleterFnPtr expected = nullptr;
  if (data_word.load(std::memory_order_acquire) == kNowhere) {
    size_t word = find_data(data.get_context(), data.get());
    if (word == kNowhere) return false;
    original_deleter.compare_exchange_strong(expected, data.get_deleter(), std::memory_order_release);
    data_word.store(word, std::memory_order_release);
  }
  return data.get_deleter() == original_deleter.load(std::memory_order_acquire) &&
         word_of(data.get_context(), data_word.load(std::memory_order_relaxed)) == reinterpret_cast<uintptr_t>(data.get());
}

c10::DataPtr allocate(c10::Allocator* self, size_t nbytes) {
  c10::DataPtr data = original_allocate(self, nbytes);
  if (!on.load(std::memory_order_relaxed) || data.get() == nullptr || data.get_context() == nullptr) return data;
  if (is_known(data) && data.compare_exchange_deleter(original_deleter.load(std::memory_order_acquire), &deleter))
    record_storage(data.get(), nbytes, blackbox::Origin::kPinned);
  else
    pytracer_count_unfollowed();
  return data;
}

// A pointer to a virtual member holds its offset in the table; on AArch64 the lowest bit is not part of it.
size_t place_of_allocate() {
  auto member = &c10::Allocator::allocate;
  uintptr_t first;
  memcpy(&first, &member, sizeof first);
  return (first & ~uintptr_t{1}) / sizeof first;
}

int is_of_cuda(dl_phdr_info* library, size_t, void*) {
  return strstr(library->dlpi_name, "/libtorch_cuda.so") != nullptr || strstr(library->dlpi_name, "/libtorch_hip.so") != nullptr;
}

// Querying torch for an allocator that it does not have costs a stack trace, and dlopen(RTLD_NOLOAD) searches directories: 100 us a name.
bool has_cuda() { return dl_iterate_phdr(is_of_cuda, nullptr) != 0; }

bool copy_table() {
  original = *object;
  iovec local{&table, sizeof table}, remote{reinterpret_cast<void*>(original - sizeof table.before), sizeof table};
  size_t place = place_of_allocate();
  auto needed = static_cast<ssize_t>(sizeof table.before + (place + 1) * sizeof original);
  if (place >= std::size(table.functions) || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < needed) return false;
  original_allocate = reinterpret_cast<Allocate>(table.functions[place]);
  table.functions[place] = reinterpret_cast<uintptr_t>(&allocate);
  return true;
}

void set_functions(uintptr_t functions) { std::atomic_ref(*object).store(functions, std::memory_order_release); }

const char* install(Level) {
  if (!has_cuda()) return nullptr;
  if (object == nullptr) {
    try {
      object = reinterpret_cast<uintptr_t*>(at::getHostAllocator(c10::kCUDA));
    } catch (...) {
    }
    if (object == nullptr || !copy_table()) {
      object = nullptr;
      return "torch's host allocator for CUDA is not as expected: pinned memory is not seen";
    }
  }
  on.store(true, std::memory_order_release);
  set_functions(reinterpret_cast<uintptr_t>(table.functions));
  return nullptr;
}

// Storages that live on keep our deleter.
void uninstall() {
  on.store(false, std::memory_order_release);
  if (object != nullptr) set_functions(original);
}

}  // namespace

const Hook kPinned{"pinned-storages", install, uninstall};

}  // namespace pytracer::hooks
